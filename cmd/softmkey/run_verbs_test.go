//go:build linux && (amd64 || arm64)

package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestRunCounters reads the port's counters after traffic, as monitors do.
func TestRunCounters(t *testing.T) {
	need(t, "ibv_rc_pingpong")
	out := runUnder(t, builtProgram(t), "("+pair("ibv_rc_pingpong -p 19872 -g 3 -n 50")+") >&2; cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if n, err := strconv.Atoi(lines[len(lines)-1]); err != nil || n < 100 {
		t.Errorf("packets: %s", out)
	}
}

// TestRunXRC runs two processes that share an XRC domain, which a file names.
func TestRunXRC(t *testing.T) {
	program := builtProgram(t)
	for _, test := range []struct{ server, client, want string }{
		{"ibv_xsrq_pingpong -g 3 -n 100 -c 1 -p 19873", "ibv_xsrq_pingpong -g 3 -n 100 -p 19873 $ADDR", "success"},
		{"ib_send_bw -c XRC -F -x 3 -n 200 -p 19874", "ib_send_bw -c XRC -F -x 3 -n 200 -p 19874 $ADDR", " 200 "},
	} {
		name, _, _ := strings.Cut(test.server, " ")
		t.Run(name, func(t *testing.T) {
			need(t, name)
			if out := runUnder(t, program, serve(test.server, test.client)); strings.Count(out, test.want) < 2 {
				t.Error(out)
			}
		})
	}
}
