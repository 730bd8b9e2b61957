//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// need skips the test if a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT RUN: %v", err)
		}
	}
}

// compile runs a compiler. It skips the test if that fails, because a package of Debian is missing.
func compile(t *testing.T, packages, compiler string, args ...string) {
	t.Helper()
	need(t, compiler)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: the program does not build here (%s): %s", packages, out)
	}
}

// TestRunMPI runs an MPI program that checks its results, by Open MPI over UCX. UCX uses the queues
// first through libmlx5 and then by its own code, and has no transport but the device.
func TestRunMPI(t *testing.T) {
	need(t, "mpirun")
	program, example := builtProgram(t), filepath.Join(t.TempDir(), "mpi")
	compile(t, "libopenmpi-dev", "mpicc", "-O1", "-Wall", "-o", example, filepath.Join("..", "..", "examples", "mpi", "mpi.c"))
	mpirun := "mpirun --oversubscribe --mca pml ucx "
	if os.Geteuid() == 0 {
		mpirun += "--allow-run-as-root "
	}
	for _, test := range []struct{ ranks, tls, env string }{{"2", "rc_v", ""}, {"2", "rc_x", ""}, {"2", "rc_x", "-x UCX_IB_MLX5_DEVX=n "}} {
		t.Run(test.tls+test.env, func(t *testing.T) {
			out := runUnder(t, program, mpirun+"-n "+test.ranks+" -x UCX_TLS="+test.tls+",self "+test.env+example)
			if !strings.Contains(out, test.ranks+" ranks: ring, ping-pong and allreduce are right") {
				t.Error(out)
			}
		})
	}
	t.Run("a run for each rank", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		command := mpirun + "-n 4 -x UCX_TLS=ud_x,self " + program + " run --device " + ownAddress(40) + " -- " + example
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.WaitDelay = time.Second
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "4 ranks: ring, ping-pong and allreduce are right") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// TestRunUCX runs UCX with its default settings. It creates its QPs and their shared receive queue
// by firmware commands, and receives errors through a DEVX event channel.
func TestRunUCX(t *testing.T) {
	need(t, "ucx_perftest")
	program := builtProgram(t)
	trace := filepath.Join(t.TempDir(), "trace")
	command := "export UCX_TLS=rc_x,self; " + serve("ucx_perftest -p 19940", "ucx_perftest $ADDR -p 19940 -t tag_lat -n 100 -w 5")
	out := runWith(t, program, []string{"--trace=" + trace, "--trace-object", "rmp"}, command)
	if !strings.Contains(out, "Final:") {
		t.Error(out)
	}
	if text, err := os.ReadFile(trace); err != nil || !strings.Contains(string(text), "create") {
		t.Errorf("no RMP was made: %v %s", err, text)
	}
}

// TestRunUCXAtomics compares UCX's atomics with a model, on a line that loses packets: those of
// the specification, and the masked ones, with which UCX makes all others.
func TestRunUCXAtomics(t *testing.T) {
	example, trace := filepath.Join(t.TempDir(), "atomics"), filepath.Join(t.TempDir(), "trace")
	compile(t, "libucx-dev", "gcc", "-O1", "-Wall", "-o", example, filepath.Join("..", "..", "examples", "ucx", "atomics.c"), "-lucp", "-lucs")
	for _, tls := range []string{"rc_x", "dc_x"} {
		t.Run(tls, func(t *testing.T) {
			out := runWith(t, builtProgram(t), []string{"--fault", "loss=2%,seed=1", "--trace=" + trace}, "UCX_TLS="+tls+" "+example)
			if !strings.Contains(out, "every answer and the memory are right") {
				t.Error(out)
			}
			text := readFile(t, trace)
			for _, op := range []string{"ATOMIC_CS", "ATOMIC_FA", "ATOMIC_MASKED_CS", "ATOMIC_MASKED_FA"} {
				if !bytes.Contains(text, []byte(op+" ")) {
					t.Errorf("no %s was posted", op)
				}
			}
		})
	}
}

// TestRunFio runs fio's RDMA engine, whose receiver verifies the checksum of each block.
func TestRunFio(t *testing.T) {
	need(t, "fio")
	const common = "fio --thread --ioengine=rdma --port=19931 --bs=64k --size=4m --verify=crc32c "
	// fio exits with 0 even if its connection is rejected because the receiver does not listen
	// yet. So its output is checked.
	const sender = "{ " + common + "--name=sender --hostname=$ADDR --verb=send --rw=write --iodepth=4 --do_verify=0 >sender; cat sender; grep -q 'err= 0' sender; }"
	out := runUnder(t, builtProgram(t), "cd "+t.TempDir()+"\n"+serve(common+"--name=receiver --rw=read --iodepth=64", sender))
	for _, part := range []string{"READ: bw=", "WRITE: bw=", "io=4096KiB"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q: %s", part, out)
		}
	}
	if strings.Contains(out, "verify:") || strings.Count(out, "err= 0") != 2 {
		t.Error(out)
	}
}

// TestRunLibfabric runs fi_pingpong, which checks the bytes (-c), over connected endpoints, over
// libfabric's reliable datagrams, which use connected endpoints, and over datagrams, for which
// libfabric takes GID index 0.
func TestRunLibfabric(t *testing.T) {
	need(t, "fi_pingpong")
	program := builtProgram(t)
	for _, test := range []struct {
		endpoint, provider string
		sizes              int // of messages; a datagram has at most one MTU
	}{{"msg", "verbs", 5}, {"rdm", "verbs;ofi_rxm", 5}, {"dgram", "verbs", 4}} {
		t.Run(test.endpoint, func(t *testing.T) {
			// A side whose peer disconnects before it has looked at its last completions gets an error that
			// libfabric itself makes. All messages have arrived then.
			script := filepath.Join(t.TempDir(), "pingpong")
			text := fmt.Sprintf(`out=$(fi_pingpong "$@" 2>&1)
status=$?
echo "$out"
[ $(echo "$out" | grep -c =10) -ge %d ] && echo "$out" | grep -q 'cq_readerr: Work Request Flushed Error' && exit 0
exit $status
`, test.sizes)
			writeFile(t, script, []byte(text), 0o600)
			command := "sh " + script + " -c -I 10 -e " + test.endpoint + " -p '" + test.provider + "'"
			out := runUnder(t, program, serve(command+" -B 19932", command+" -P 19932 $ADDR"))
			if strings.Count(out, "=10") < 2*test.sizes {
				t.Error(out)
			}
		})
	}
}

// TestRunXRCByCM runs the sample of librdmacm that connects XRC queue pairs by rdma_create_ep, and,
// for comparison, its RC variant.
func TestRunXRCByCM(t *testing.T) {
	need(t, "rdma_xserver", "rdma_xclient")
	program := builtProgram(t)
	for i, kind := range []string{"x", "r"} {
		t.Run(kind, func(t *testing.T) {
			out := runUnder(t, program, fmt.Sprintf(serve("rdma_xserver -p %d -c %s", "rdma_xclient -s $ADDR -p %[1]d -c %[2]s"), 19960+i, kind))
			for _, part := range []string{"rdma_xserver: end 0", "rdma_xclient: end 0"} {
				if !strings.Contains(out, part) {
					t.Errorf("no %q: %s", part, out)
				}
			}
		})
	}
}
