//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestRunMetrics reads the metrics of a run whose memory key finds a bad block, while its program waits. Prometheus'
// promtool checks them, the alerts and the expressions of the dashboard, which name metrics that exist.
func TestRunMetrics(t *testing.T) {
	need(t, "promtool")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	addr := l.Addr().String()
	l.Close()
	c := exec.Command(builtProgram(t), "run", "--device", ownAddress(10), "--metrics", addr, "--", "sh", "-c", buildExample(t, "pipelining")+"; exec "+buildC(t, "manyqps", "manyqps.c")+" 5 60")
	fatal.If(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	var text string
	for range 600 {
		if r, err := http.Get("http://" + addr + "/metrics"); err == nil {
			b, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if text = string(b); strings.Contains(text, `state="INIT"} 4`) {
				break
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, part := range []string{
		`state="INIT"} 4`, `state="RESET"} 1`, `softmkey_bad_signatures_total{domain="wire",kind="bad guard"} 1`, `softmkey_requests_total{operation="RDMA_READ",outcome="succeeded"} 3`,
		`softmkey_request_duration_seconds_count{operation="RDMA_READ"} 3`, "softmkey_memory_keys{", `softmkey_build_info{goversion="go`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}
	promtool := func(input string, args ...string) {
		p := exec.Command("promtool", args...)
		p.Stdin = strings.NewReader(input)
		if out, err := p.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
	}
	promtool(text, "check", "metrics")
	alerts := filepath.Join("..", "..", "docs", "alerts.yml")
	promtool("", "check", "rules", alerts)

	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana.json"))
	if err == nil {
		err = json.Unmarshal(content, &board)
	}
	fatal.If(t, err)
	rules, n := "groups: [{name: board, rules: [", 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			n++
			rules += fmt.Sprintf("{record: 'board:%d', expr: %q},\n", n, target.Expr)
		}
	}
	file := filepath.Join(t.TempDir(), "board.yml")
	writeFile(t, file, []byte(rules+"]}]\n"), 0o666)
	promtool("", "check", "rules", file)
	if n < 8 {
		t.Errorf("the dashboard has %d expressions", n)
	}
	written, err := os.ReadFile(alerts)
	fatal.If(t, err)
	for _, name := range regexp.MustCompile(`softmkey_[a-z_]+`).FindAllString(rules+string(written), -1) {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("no metric is named %s", name)
		}
	}
}
