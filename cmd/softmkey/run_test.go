//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// builtProgram returns softmkey in a folder of the test. All tests of the process share one build:
// linking takes longer than most of them.
func builtProgram(t *testing.T) string {
	t.Helper()
	built, err := build()
	fatal.If(t, err)
	program := filepath.Join(t.TempDir(), "softmkey")
	fatal.If(t, os.Link(built, program))
	return program
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "softmkey-test-")
	if err != nil {
		return "", err
	}
	afterTests = append(afterTests, func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "softmkey")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return program, nil
})

// runUnder runs a shell command under softmkey run and returns its output. The variable ADDR
// has the device's address, which is not always 127.0.0.1, because other runs may have that.
func runUnder(t *testing.T, program string, command string) string {
	t.Helper()
	return runWith(t, program, nil, command)
}

// wireFlags returns --wire if SOFTMKEY_WIRE is set. The tests then send packets within one device
// through its socket instead of in memory.
func wireFlags() []string {
	if os.Getenv("SOFTMKEY_WIRE") != "" {
		return []string{"--wire"}
	}
	return nil
}

// runWith is runUnder with more flags of softmkey run.
func runWith(t *testing.T, program string, flags []string, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := ownAddress(5)
	args := append(append([]string{"run", "-v", "--device", addr}, wireFlags()...), flags...)
	c := exec.CommandContext(ctx, program, append(args, "--", "sh", "-c", command)...)
	c.Env = append(os.Environ(), "ADDR="+addr)
	c.Cancel = func() error { return c.Process.Kill() } // the guard then ends the other processes
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestRunPrograms runs programs of the distribution.
func TestRunPrograms(t *testing.T) {
	need(t, "ibv_devinfo", "ibv_rc_pingpong", "rdma")
	program := builtProgram(t)
	if out := runUnder(t, program, "ibv_devinfo -v"); !strings.Contains(out, "hca_id:\tmlx5_0") || !strings.Contains(out, "RoCE v2") {
		t.Errorf("ibv_devinfo: %s", out)
	}
	if out := runUnder(t, program, "rdma -j link"); !strings.Contains(out, `"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP"`) {
		t.Errorf("rdma link: %s", out)
	}
	// Programs assume the GID indices of adapters, where 0 and 2 are those of RoCE v1. All four
	// must work.
	out := runUnder(t, program, "for g in 0 1 2 3; do ibv_rc_pingpong -c -p 1987$g -g $g -n 50 & sleep 0.5; until ibv_rc_pingpong -c -p 1987$g -g $g -n 50 $ADDR; do sleep 0.1; done; wait; done")
	if strings.Count(out, "50 iters in") != 8 {
		t.Errorf("ibv_rc_pingpong: %s", out)
	}
}
