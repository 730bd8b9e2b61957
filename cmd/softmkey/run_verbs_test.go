//go:build linux && (amd64 || arm64)

package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestRunCounters reads the port's counters after traffic, as monitors do.
func TestRunCounters(t *testing.T) {
	if _, err := exec.LookPath("ibv_rc_pingpong"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	out := runUnder(t, builtProgram(t), "("+pair("ibv_rc_pingpong -p 19872 -g 3 -n 50")+") >&2; cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if n, err := strconv.Atoi(lines[len(lines)-1]); err != nil || n < 100 {
		t.Errorf("packets: %s", out)
	}
}
