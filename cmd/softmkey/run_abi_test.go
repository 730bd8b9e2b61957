//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunABI runs programs that check what the kernel and the driver of an adapter would do.
func TestRunABI(t *testing.T) {
	program := builtProgram(t)
	build := func(t *testing.T, name string) string {
		t.Helper()
		return buildC(t, name, filepath.Join("..", "abi", name+".c"))
	}
	// Each fault of softmkey control, while a program runs.
	t.Run("faults", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "control")
		out := runWith(t, program, []string{"--control", socket}, build(t, "faults")+" "+program+" "+socket+" $ADDR")
		if !strings.Contains(out, "all faults are as on an adapter") {
			t.Error(out)
		}
		if out, err := exec.Command(program, "control", socket, "port", "down").CombinedOutput(); err == nil || !strings.Contains(string(out), "no run listens on "+socket+": start it with --control") {
			t.Errorf("a fault after the end of the run: %v: %s", err, out)
		}
	})
	// Memory that a kernel refuses to pin, and a first thread that ends.
	t.Run("memory", func(t *testing.T) {
		out := runUnder(t, program, build(t, "memory"))
		if !strings.Contains(out, "memory is as a kernel pins it") || !strings.Contains(out, "nothing is mapped at") {
			t.Error(out)
		}
	})
	// Calls that the kernel, the driver or an adapter refuses.
	t.Run("refused", func(t *testing.T) {
		if out := runUnder(t, program, build(t, "refused")); !strings.Contains(out, "all is refused as on an adapter") {
			t.Error(out)
		}
	})
	// The order of requests, answers and acknowledgements, in memory and through the sockets.
	for _, flags := range [][]string{nil, {"--wire"}} {
		t.Run("order"+strings.Join(flags, ""), func(t *testing.T) {
			if out := runWith(t, program, flags, build(t, "order")); !strings.Contains(out, "requests and answers are in order") {
				t.Error(out)
			}
		})
	}
	// Registered memory that is unmapped, replaced and protected.
	t.Run("strict memory", func(t *testing.T) {
		out := runWith(t, program, []string{"--strict-memory"}, build(t, "strict"))
		if !strings.Contains(out, "registered memory is watched") {
			t.Error(out)
		}
		for call, times := range map[string]int{"mprotect": 1, "munmap": 1, "mmap": 1} {
			if n := strings.Count(out, ": "+call+" of 0x"); n < times {
				t.Errorf("%s was reported %d times: %s", call, n, out)
			}
		}
		if !strings.Contains(out, "called from 0x") || !strings.Contains(out, "(strict+0x") {
			t.Errorf("the lines do not say where the calls are made: %s", out)
		}
	})
	// Each symbolic link below the device's folder in sysfs leads somewhere. With a slash behind it, its path names the
	// folder that it leads to.
	t.Run("links", func(t *testing.T) {
		if out := runUnder(t, program, "find -L /sys/class/infiniband/ /sys/class/infiniband_verbs/ -maxdepth 3 -type l 2>/dev/null; readlink -e /sys/class/infiniband/mlx5_0/device/driver; cd /sys/class/infiniband; stat -c %F mlx5_0 mlx5_0/ mlx5_0/device/."); out != "/sys/bus/pci/drivers/mlx5_core\nsymbolic link\ndirectory\ndirectory\n" {
			t.Error(out)
		}
	})
	// The program by which most people look for devices first. It changes its current folder to one of the
	// device.
	t.Run("ibstatus", func(t *testing.T) {
		need(t, "ibstatus")
		if out := runUnder(t, program, "ibstatus"); !strings.Contains(out, "'mlx5_0' port 1 status") || !strings.Contains(out, "4: ACTIVE") {
			t.Error(out)
		}
	})
	// A network interface that goes down and up again, and gets and loses addresses, in a network namespace of its own.
	t.Run("link", func(t *testing.T) {
		need(t, "ibv_asyncwatch", "ibv_rc_pingpong", "rping", "unshare", "ip", "stdbuf")
		const setup = "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up"
		if out, err := exec.Command("unshare", "-n", "sh", "-c", setup).CombinedOutput(); err != nil {
			t.Skipf("NOT RUN: no network namespace of its own: %v: %s", err, out)
		}
		const watch = `stdbuf -oL ibv_asyncwatch mlx5_0 > "$1" & watch=$!
			seen() { n=0; until grep -q "$1" "$2"; do sleep 0.05; n=$((n+1)); [ $n -lt 400 ] || exit 3; done; }
			seen FD "$1"; ip link set v0 down; seen PORT_ERR "$1"; cat /sys/class/infiniband/mlx5_0/ports/1/state
			ip link set v0 up; seen PORT_ACTIVE "$1"; cat /sys/class/infiniband/mlx5_0/ports/1/state
			changes() { n=0; until [ "$(grep -c GID_CHANGE "$log")" = "$1" ]; do sleep 0.05; n=$((n+1)); [ $n -lt 400 ] || exit 3; done; }
			gids() { grep -vh '^0000:0000:0000:0000:0000:0000:0000:0000\|^fe80' /sys/class/infiniband/mlx5_0/ports/1/gids/* | cut -c 26- | tr '\n' ' '; echo "$1"; }
			log="$1"
			ip addr add 10.78.0.1/24 dev v0; changes 1; gids added
			for index in 5 3; do timeout 20 ibv_rc_pingpong -g 5 >/dev/null & n=0; until timeout 20 ibv_rc_pingpong -g $index localhost | grep "remote.*10.78.0.1"; do sleep 0.1; n=$((n+1)); [ $n -lt 100 ] || exit 3; done; wait $!; done
			rping -s -a 10.78.0.1 -C 1 & sleep 1; rping -c -a 10.78.0.1 -C 1 -v 2>&1 | grep "ping data"
			ip -6 addr add fd09::1/64 dev v0 nodad; changes 2; gids IPv6
			ip addr del 10.77.0.1/24 dev v0; changes 3; gids "without its own"
			ip addr add 10.79.0.1/24 dev v0; changes 4; gids again
			ip addr add 10.77.0.1/24 dev v0; changes 5; gids back
			kill $watch`
		log := filepath.Join(t.TempDir(), "events")
		script := filepath.Join(t.TempDir(), "watch")
		writeFile(t, script, []byte(watch), 0o755)
		out, err := exec.Command("unshare", "-n", "sh", "-c", setup+" && exec "+program+" run --device v0 -v -- sh "+script+" "+log).CombinedOutput()
		events, _ := os.ReadFile(log)
		for _, want := range []string{
			"1: DOWN", "4: ACTIVE", "ffff:0a4d:0001 ffff:0a4d:0001 ffff:0a4e:0001 ffff:0a4e:0001 added\n", "ping data",
			"ffff:0a4e:0001 ffff:0a4e:0001 0000:0000:0001 0000:0000:0001 IPv6\n", "\nffff:0a4e:0001 ffff:0a4e:0001 0000:0000:0001 0000:0000:0001 without its own\n",
			"\nffff:0a4f:0001 ffff:0a4f:0001 ffff:0a4e:0001 ffff:0a4e:0001 0000:0000:0001 0000:0000:0001 again\n",
			"0000:0000:0001 0000:0000:0001 ffff:0a4d:0001 ffff:0a4d:0001 back\n",
		} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Fatalf("no %q: %v: %s; the events: %s", want, err, out, events)
			}
		}
	})
}
