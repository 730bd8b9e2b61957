//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fourHosts is a script that makes four hosts, which are network namespaces on a bridge, and a
// program "launch" that takes the place of ssh. Then it runs the command that is its argument. The
// script itself runs in a network namespace, too.
const fourHosts = `set -e
	cd "$1"
	ip link set lo up
	ip link add br0 type bridge || exit 77
	ip link set br0 up; ip addr add 10.9.0.254/24 dev br0
	for i in 1 2 3 4; do
		unshare -n sleep 1000 & host=$!
		trap "kill $host; $undo" EXIT; undo="kill $host; $undo"
		until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
		ip link add v$i type veth peer name eth0 netns $host || exit 77
		ip link set v$i master br0 up
		nsenter -t $host -n sh -c "ip link set lo up; ip addr add 10.9.0.$i/24 dev eth0; ip link set eth0 up"
		echo $host >10.9.0.$i
	done
	cat >launch <<'END'
#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
host=$(cat "${0%/*}/$1"); shift
exec nsenter -t $host -n sh -c "$*"
END
	chmod +x launch
	eval "$2"`

// TestRunCluster runs an MPI program on four hosts with two ranks each, started by the launchers of
// Open MPI and MPICH. There is either a softmkey run for each rank, so that the two runs of a host
// share its address, or one for each host. The program checks every byte and every sum.
func TestRunCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: the long form starts 8 ranks on four hosts, three times")
	}
	need(t, "mpicc.openmpi", "mpirun.openmpi", "ip", "unshare", "nsenter")
	source := filepath.Join("..", "..", "examples", "mpi", "mpi.c")
	program := builtProgram(t)
	const (
		hosts = "10.9.0.1:2,10.9.0.2:2,10.9.0.3:2,10.9.0.4:2"
		open  = "mpirun.openmpi --mca plm_rsh_agent $PWD/launch --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.9.0.0/24 --mca pml ucx -x UCX_TLS=rc,ud,self --host " + hosts + " -np 8 "
		mpich = "UCX_TLS=rc,ud,self mpiexec.mpich -launcher ssh -launcher-exec $PWD/launch -iface br0 -hosts " + hosts + " -n 8 "
	)
	for _, test := range []struct{ name, compiler, command string }{
		{"Open MPI, a run for each rank", "mpicc.openmpi", open + "$RUN run --device auto -- ./mpi"},
		{"Open MPI, a run for each host", "mpicc.openmpi", open + `--leave-session-attached --mca orte_launch_agent "$RUN run --device eth0 -- orted" ./mpi`},
		{"MPICH, a run for each rank", "mpicc.mpich", mpich + "$RUN run --device auto -- ./mpi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			compile(t, "libopenmpi-dev, libmpich-dev", test.compiler, "-O1", "-o", filepath.Join(folder, "mpi"), source)
			args := []string{"-n", "bash", "-c", fourHosts, "bash", folder, test.command}
			if os.Geteuid() != 0 {
				args[0] = "-Urn"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, "unshare", args...)
			c.Env = append(os.Environ(), "RUN="+program, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			c.WaitDelay = time.Second
			out, err := c.CombinedOutput()
			if c.ProcessState != nil && c.ProcessState.ExitCode() == 77 {
				t.Skipf("NOT RUN: no bridge or no veth: %s", out)
			}
			if err != nil || !strings.Contains(string(out), "8 ranks: ring, ping-pong and allreduce are right") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
