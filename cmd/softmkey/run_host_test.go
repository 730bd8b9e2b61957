//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestRunTwoHosts connects programs of two hosts, which bind and resolve addresses of the
// hosts, so that softmkey run needs no --device. Each host is a network namespace.
func TestRunTwoHosts(t *testing.T) {
	need(t, "rping", "ip", "unshare", "nsenter", "ss")
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: network namespaces need root")
	}
	const script = `set -e
		hosts() { ip link set lo up; ip link add here type veth peer name there; }
		hosts || { echo 'no veth'; exit 77; }
		unshare -n sleep 1000 & other=$!
		trap 'kill $other' EXIT
		until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
		ip link set there netns $other
		far() { nsenter -t $other -n "$@"; }
		ip addr add 10.9.0.1/24 dev here; ip link set here up
		ip -6 addr add fd09::1/64 dev here nodad
		far ip addr add 10.9.0.2/24 dev there; far ip link set there up; far ip link set lo up
		far ip -6 addr add fd09::2/64 dev there nodad
		for to in 10.9.0.2 fd09::2; do
			far "$0" run -v -- rping -s -a $to -C 3 & server=$!
			until far ss -lunH | grep -qF "$to" || ! kill -0 $server; do sleep 0.01; done
			until "$0" run -v -- rping -c -a $to -C 3 -v; do kill -0 $server; done
			wait $server
		done`
	program := builtProgram(t)
	out, err := rpings(t, func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "unshare", "-n", "bash", "-c", script, program)
	})
	if strings.HasPrefix(string(out), "no veth") {
		t.Skipf("NOT RUN: ip link set lo up: %v: %s", err, out)
	}
	if err != nil || strings.Count(string(out), "ping data") != 6 {
		t.Errorf("%v: %s", err, out)
	}
}

// rpings runs a command that runs rping. It runs the command again if rping lost a race with
// itself: the main thread of rping closes the descriptor from which another one is about to read
// the next event, and rping ends with an error after its last message.
func rpings(t *testing.T, command func(context.Context) *exec.Cmd) (out []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10 {
		c := command(ctx)
		c.WaitDelay = 5 * time.Second
		out, err = c.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("rdma_get_cm_event: Bad file descriptor")) {
			break
		}
		t.Logf("rping has lost its race: %v: %s", err, out)
	}
	return out, err
}

// TestRunAddress binds addresses with rdma_cm: addresses of this host, addresses of other hosts,
// and an address that is in use.
func TestRunAddress(t *testing.T) {
	need(t, "rping")
	program := builtProgram(t)
	mine, taken := ownAddress(7), ownAddress(8)
	if a := otherAddress(); a.IsValid() {
		if c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 4791))); err == nil {
			c.Close()
			mine = a.String()
		}
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(taken+":4791")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct{ name, flags, addr, flow, says string }{
		{"free", "", mine, "ok", "ping data"},
		{"taken", "", taken, "refused", taken + " has a device already: UDP port 4791 is taken"},
		{"not local", "", "192.0.2.77", "refused", "192.0.2.77 is no address of this host"},
		{"not the flag's", "--device " + ownAddress(9), mine, "refused", "the flag --device " + mine + " gives it one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			args := append(append([]string{"run", "-v"}, strings.Fields(test.flags)...), "--", "sh", "-c",
				`rping -s -a $0 -C 3 & p=$!; [ $1 = ok ] || { wait $p; exit; }; until rping -c -a $0 -C 3 -v; do kill -0 $p || exit; sleep 0.05; done`, test.addr, test.flow)
			c := exec.CommandContext(ctx, program, args...)
			c.WaitDelay = 5 * time.Second
			if out, _ := c.CombinedOutput(); !strings.Contains(string(out), test.says) {
				t.Errorf("%s", out)
			}
		})
	}
}

// TestRunNoAddress: if another program has the UDP port on all addresses, the error names it.
func TestRunNoAddress(t *testing.T) {
	need(t, "ip")
	runtime.LockOSThread() // for good: the thread, which is in another network namespace, ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("NOT RUN: a network namespace: %v", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: ip link set lo up: %v: %s", err, out)
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: 4791})
	fatal.If(t, err)
	defer c.Close()
	out, err := exec.Command(builtProgram(t), "run", "--", "true").CombinedOutput()
	if want := fmt.Sprintf("UDP port 4791 is taken by process %d", os.Getpid()); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s", err, out)
	}
}

// otherAddress returns an IPv4 address of this host that is not a loopback address.
func otherAddress() netip.Addr {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
