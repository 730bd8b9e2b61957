//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRunStopped stops the device of a run while two runs exchange messages, as a busy machine does, for longer than all
// timeouts of a queue pair together, 8 of 67 ms. An adapter would have answered meanwhile: nothing may fail.
func TestRunStopped(t *testing.T) {
	need(t, "ibv_rc_pingpong", "stdbuf")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	program, addr := builtProgram(t), ownAddress(12)
	start := func(device, command string) (c *exec.Cmd, out *output) {
		out = &output{connected: make(chan struct{})}
		c = exec.CommandContext(ctx, program, "run", "--device", device, "--", "sh", "-c", command)
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, out
	}
	const pingpong = "stdbuf -oL ibv_rc_pingpong -g 3 -p 19874 -n 10000"
	server, said := start(addr, "exec "+pingpong)
	client, heard := start(ownAddress(13), fmt.Sprintf(`exec 3>&1; until err=$(%s %s 2>&1 >&3); do case $err in *"Couldn't connect"*) sleep 0.1;; *) echo "$err"; exit 1;; esac; done`, pingpong, addr))
	select {
	case <-heard.connected:
	case <-ctx.Done():
	}
	time.Sleep(250 * time.Millisecond) // both have connected, and the messages go on
	server.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2 * time.Second)
	server.Process.Signal(syscall.SIGCONT)
	for _, c := range []*exec.Cmd{client, server} {
		if err := c.Wait(); err != nil {
			t.Errorf("%v\nserver: %s\nclient: %s", err, said.text, heard.text)
		}
	}
}

// output collects the output of ibv_rc_pingpong. connected is closed when the program has printed its peer's address.
type output struct {
	text      []byte
	connected chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	const peer = "remote address"
	had := strings.Contains(string(o.text), peer)
	if o.text = append(o.text, b...); !had && strings.Contains(string(o.text), peer) {
		close(o.connected)
	}
	return len(b), nil
}
