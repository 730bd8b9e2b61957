package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/rdma"
)

// TestServe reads the counters of two devices over HTTP, and checks them with Prometheus' linter.
func TestServe(t *testing.T) {
	sent := uint64(7)
	var table summary.Table
	table.Add("SEND", summary.Succeeded, 3, 64, 5*time.Microsecond)
	table.Add("SEND", summary.Failed, 1, 0, 0)
	s, err := Serve("127.0.0.1:0", "v1", func() State {
		return State{
			Devices: []Device{
				{Name: "mlx5_0", Addr: netip.MustParseAddr("127.0.0.1"), Counters: rdma.Counters{SentPackets: sent}, QPs: map[string]int{"RTS": 2}, Keys: 3, Regions: 4},
				{Name: "mlx5_1", Addr: netip.MustParseAddr("fd00::1"), Counters: rdma.Counters{BadICRC: 1<<53 - 1}},
			},
			Operations: table.Times(), BadBlocks: map[[2]string]uint64{{"bad guard", "wire"}: 5},
		}
	})
	fatal.If(t, err)
	get := func(path string) string {
		r, err := http.Get("http://" + s.Addr().String() + path)
		fatal.If(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%v, %v", r.Status, err)
		}
		return string(b)
	}
	for range 2 {
		text := get("/metrics")
		for _, line := range []string{
			`softmkey_sent_packets_total{address="127.0.0.1",device="mlx5_0"} ` + map[uint64]string{7: "7", 8: "8"}[sent] + "\n",
			`softmkey_bad_icrc_total{address="fd00::1",device="mlx5_1"} 9.007199254740991e+15` + "\n",
			`softmkey_queue_pairs{address="127.0.0.1",device="mlx5_0",state="RTS"} 2` + "\n",
			`softmkey_queue_pairs{address="127.0.0.1",device="mlx5_0",state="ERR"} 0` + "\n",
			`softmkey_memory_keys{address="127.0.0.1",device="mlx5_0"} 3` + "\n",
			`softmkey_memory_regions{address="127.0.0.1",device="mlx5_0"} 4` + "\n",
			`softmkey_requests_total{operation="SEND",outcome="succeeded"} 3` + "\n",
			`softmkey_requests_total{operation="SEND",outcome="failed"} 1` + "\n",
			`softmkey_request_duration_seconds_bucket{operation="SEND",le="4.096e-06"} 0` + "\n",
			`softmkey_request_duration_seconds_bucket{operation="SEND",le="1.6384e-05"} 3` + "\n",
			`softmkey_request_duration_seconds_sum{operation="SEND"} 1.5e-05` + "\n",
			`softmkey_bad_signatures_total{domain="wire",kind="bad guard"} 5` + "\n",
			`softmkey_build_info{goversion="` + runtime.Version() + `",version="v1"} 1` + "\n",
			"# HELP softmkey_probes_total Packets sent again after about a round trip without progress.\n",
		} {
			if !strings.Contains(text, line) {
				t.Errorf("no %q in %s", line, text)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		sent++
	}
	if text := get("/"); !strings.Contains(text, `href="/metrics"`) {
		t.Errorf("/ is %q", text)
	}
	for name, field := range fields() {
		if field.Get("help") == "" {
			t.Errorf("%s has no help text", name)
		}
	}
	if _, err := Serve(s.Addr().String(), "", nil); err == nil {
		t.Error("a second server at the address")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// fields returns the tags of the counters.
func fields() map[string]reflect.StructTag {
	all := map[string]reflect.StructTag{}
	for f := range reflect.TypeFor[rdma.Counters]().Fields() {
		all[f.Name] = f.Tag
	}
	return all
}

// TestConnections opens as many connections as the server has, and sends nothing or half a request on them. A
// request beside them is answered at once, in the place of the oldest one; the others stay open.
func TestConnections(t *testing.T) {
	s, err := Serve("127.0.0.1:0", "v1", func() State { return State{} })
	fatal.If(t, err)
	defer s.Close()
	var open []net.Conn
	for i := range connections {
		c, err := net.Dial("tcp", s.Addr().String())
		fatal.If(t, err)
		defer c.Close()
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: "); err != nil {
				t.Fatal(err)
			}
		}
		open = append(open, c)
	}
	one := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		r, err := one.Get("http://" + s.Addr().String() + "/metrics")
		fatal.If(t, err)
		r.Body.Close()
	}
	// The server has closed one connection for the first request, and none for the others.
	open[0].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := open[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection: %v", err)
	}
	last := open[connections-2] // half a request
	if _, err := io.WriteString(last, "b\r\nConnection: close\r\n\r\n"); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(last); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
		t.Errorf("the rest of a request: %q, %v", b[:min(len(b), 40)], err)
	}
}
