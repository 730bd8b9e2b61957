//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestRunLossy runs testdata/lossy, a program on rdma_cm with many messages in flight that compares
// every byte, while packets are lost: between two runs, and within one. The long form takes an hour.
func TestRunLossy(t *testing.T) {
	lossy, program := filepath.Join(t.TempDir(), "lossy"), builtProgram(t)
	compile(t, "libibverbs-dev, librdmacm-dev", "gcc", "-O1", "-Wall", "-o", lossy, filepath.Join("testdata", "lossy", "lossy.c"), "-libverbs", "-lrdmacm")
	until := time.Time{}
	if os.Getenv("SOFTMKEY_LONG") != "" {
		until = time.Now().Add(time.Hour)
	}
	networks := []string{"loss=1%", "loss=0.1%", "loss=3%", "loss=1%,reorder=5%", "loss=1%,duplicate=2%"}
	sizes := []int{1024, 4096, 256, 1024, 16384}
	server, client := ownAddress(60), ownAddress(61)
	for seed := 1; seed <= 5 || time.Now().Before(until); seed++ {
		size, fault := sizes[seed%5], fmt.Sprintf("%s,seed=%d", networks[seed%5], seed)
		if !t.Run(fmt.Sprintf("%d bytes, %s", size, fault), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			end := func(device, role string) *exec.Cmd {
				c := exec.CommandContext(ctx, program, "run", "--device", device, "--fault", fault, "--", lossy, role, server, fmt.Sprint(size), "32", "6000")
				c.WaitDelay = time.Second
				return c
			}
			if seed%5 == 4 {
				out, err := end(server, "both").CombinedOutput()
				checkLossy(t, out, err)
				return
			}
			s := end(server, "server")
			out, err := s.StdoutPipe()
			fatal.If(t, err)
			fatal.If(t, s.Start())
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "listening\n" {
				t.Fatalf("the server printed %q, %v", line, err)
			}
			sent, err := end(client, "client").CombinedOutput()
			checkLossy(t, sent, err)
			received, _ := io.ReadAll(lines)
			checkLossy(t, received, s.Wait())
		}) {
			return
		}
	}
}

// checkLossy checks what an end of testdata/lossy printed.
func checkLossy(t *testing.T, out []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Contains(out, []byte(" 0 wrong")) {
		t.Errorf("%v: %s", err, out)
	}
}
