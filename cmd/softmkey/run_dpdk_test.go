//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
)

// dpdkRun is a run of DPDK's crypto_mlx5 by dpdk-test-crypto-perf.
type dpdkRun struct {
	size, key int // bytes
	op, test  string
	ops       int
}

// TestRunDPDK runs DPDK's crypto_mlx5, which makes its queues, keys and data encryption keys by
// firmware commands. The program compares every result with OpenSSL's.
func TestRunDPDK(t *testing.T) {
	need(t, "dpdk-test-crypto-perf")
	if runtime.NumCPU() < 2 {
		t.Skip("NOT RUN: DPDK needs two processors")
	}
	dir, program := t.TempDir(), builtProgram(t)
	vectors := filepath.Join(dir, "vectors")
	compile(t, "libssl-dev", "gcc", "-O1", "-Wall", "-o", vectors, filepath.Join("testdata", "dpdk", "vectors.c"), "-lcrypto")
	runs := []dpdkRun{{4096, 64, "encrypt", "verify", 2000}, {512, 32, "decrypt", "verify", 2000}}
	if !testing.Short() {
		runs = append(runs, dpdkRun{4096, 64, "decrypt", "verify", 2000}, dpdkRun{4096, 32, "encrypt", "verify", 2000}, dpdkRun{4096, 32, "decrypt", "verify", 2000},
			dpdkRun{512, 64, "encrypt", "verify", 2000}, dpdkRun{512, 64, "decrypt", "verify", 2000}, dpdkRun{512, 32, "encrypt", "verify", 2000},
			dpdkRun{4096, 64, "encrypt", "throughput", 200000}) // the consumer index of 16 bits wraps
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%s %s %d bytes, keys of %d", r.test, r.op, r.size, r.key), func(t *testing.T) {
			file := filepath.Join(dir, fmt.Sprintf("%d-%d", r.size, r.key))
			text, err := exec.Command(vectors, fmt.Sprint(r.size), fmt.Sprint(r.key)).Output()
			if err == nil {
				err = os.WriteFile(file, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			out := runWith(t, program, []string{"--crypto-profile", "single-block"}, fmt.Sprintf("export XDG_RUNTIME_DIR=%s; dpdk-test-crypto-perf --file-prefix=softmkey$$ --no-huge -m 512 --iova-mode=va --no-telemetry -l 0,1 -a 7f00:00:00.0,class=crypto --"+
				" --devtype mlx5_pci --ptest %s --optype cipher-only --cipher-algo aes-xts --cipher-op %s --cipher-key-sz %d --cipher-iv-sz 16 --buffer-sz %d"+
				" --total-ops %d --burst-sz 32 --desc-nb 256 --pool-sz 2048 --test-file %s", dir, r.test, r.op, r.key, r.size, r.ops, file))
			// The columns are the lcore, the sizes, the operations that were enqueued and dequeued,
			// and the attempts to enqueue or dequeue that found a full or an empty queue. The test
			// "verify" has a further column for operations that failed.
			line := fmt.Sprintf(`(?m)^ +1 +%d +32 +%d +%d +\d+ +\d+ +`, r.size, r.ops, r.ops)
			if r.test == "verify" {
				line += "0 *$"
			}
			if !regexp.MustCompile(line).MatchString(out) {
				t.Error(out)
			}
		})
	}
}
