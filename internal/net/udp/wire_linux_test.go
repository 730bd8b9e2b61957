package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
)

// enterNamespace moves the test to a thread in a new network namespace. The namespace is
// deleted with the thread, and the thread ends with the test. Without the privilege to
// create a namespace the test is skipped, because packets on the wire cannot be captured.
func enterNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("looking at packets on the wire needs root: an AF_PACKET socket in a network namespace")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("making a veth pair needs the command ip, of Debian's package iproute2")
	}
	runtime.LockOSThread() // never unlocked: the runtime ends the thread of a locked goroutine with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("making a network namespace needs CAP_SYS_ADMIN: %v", err)
	}
}

// ip runs the ip command in the thread's namespace.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// capture is an AF_PACKET socket on one interface.
type capture int

func openCapture(t *testing.T, name string) capture {
	t.Helper()
	i, err := net.InterfaceByName(name)
	fatal.If(t, err)
	all := uint16(unix.ETH_P_ALL)<<8 | unix.ETH_P_ALL>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	fatal.If(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	fatal.If(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	fatal.If(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	// Only a failing test waits for so long. A kernel thread delivers the packets, which may wait for a processor.
	fatal.If(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	return capture(fd)
}

// next returns the next incoming UDP packet, from its IP header on.
func (c capture) next(t *testing.T) []byte {
	t.Helper()
	buf := make([]byte, 1<<17)
	for {
		n, from, err := unix.Recvfrom(int(c), buf, 0)
		if err != nil {
			stats, _ := unix.GetsockoptTpacketStats(int(c), unix.SOL_PACKET, unix.PACKET_STATISTICS)
			queues, _ := os.ReadFile("/proc/net/softnet_stat")
			t.Fatalf("no packet came: %v; the socket has had %+v, the processors' queues (packets, dropped, ...):\n%s", err, stats, queues)
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue // loopback shows each packet as outgoing and as incoming
		}
		p := buf[:n]
		if v := p[0] >> 4; v == 4 && p[9] == unix.IPPROTO_UDP || v == 6 && p[6] == unix.IPPROTO_UDP {
			return p
		}
	}
}

// check compares the headers of a packet with the expected values, for a given payload
// size.
func checkHeaders(t *testing.T, p []byte, payload int, id uint16, tos byte) {
	t.Helper()
	if p[0]>>4 == 6 {
		if got := byte(binary.BigEndian.Uint16(p) >> 4); got != tos {
			t.Errorf("traffic class %#x, want %#x", got, tos)
		}
		if len(p) != 40+8+payload {
			t.Errorf("packet of %d bytes with headers, want a payload of %d: was it fragmented?", len(p), payload)
		}
		return
	}
	if p[0] != 0x45 || len(p) != 20+8+payload {
		t.Fatalf("packet of %d bytes with headers, want a payload of %d", len(p), payload)
	}
	if p[1] != tos {
		t.Errorf("type of service %#x, want %#x", p[1], tos)
	}
	if got := binary.BigEndian.Uint16(p[4:]); got != id {
		t.Errorf("identification %d, want %d", got, id)
	}
	if got := binary.BigEndian.Uint16(p[6:]); got != 0x4000 {
		t.Errorf("flags and fragment offset %#04x, want don't-fragment alone", got)
	}
}

// TestIdentificationOnTheWire compares ID with the headers that a packet socket captures,
// on loopback and at the far end of a veth pair. Both interfaces are configured to take
// one segment at a time. By default they pass whole trains on, because they only copy
// memory, and the segments would not be numbered.
func TestIdentificationOnTheWire(t *testing.T) {
	enterNamespace(t)
	ip(t, "link", "set", "lo", "gso_max_segs", "1", "up")
	ip(t, "link", "add", "v0", "gso_max_segs", "1", "mtu", "9000", "type", "veth", "peer", "name", "v1", "mtu", "9000")
	ip(t, "address", "add", "10.77.0.1/24", "dev", "v0")
	ip(t, "address", "add", "fd77::1/64", "dev", "v0", "nodad")
	ip(t, "link", "set", "v0", "up")
	ip(t, "link", "set", "v1", "up")
	// No program listens at the far end, so packets only arrive there.
	ip(t, "neighbor", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v0")
	ip(t, "neighbor", "add", "fd77::2", "lladdr", "02:00:00:00:00:02", "dev", "v0")

	for _, path := range []struct{ device, from, to string }{
		{"lo", "127.0.0.1:0", "127.0.0.1:4791"},
		{"lo", "[::1]:0", "[::1]:4791"},
		{"v1", "10.77.0.1:4791", "10.77.0.2:4791"},
		{"v1", "[fd77::1]:4791", "[fd77::2]:4791"},
	} {
		for _, noGSO := range []bool{false, true} {
			c := listenLinux(t, netip.MustParseAddrPort(path.from), &Options{NoGSO: noGSO})
			if c.Caps().GSO == noGSO {
				t.Errorf("caps: %+v", c.Caps())
			}
			packets := openCapture(t, path.device)
			to := netip.MustParseAddrPort(path.to)
			for _, shape := range []struct{ count, seg, last int }{
				{1, 60, 60}, {1, 4096, 4096}, {2, 60, 60}, {15, 4096 + 20, 100}, {64, 1000, 1000}, {c.Limits().Datagrams, 276, 1},
			} {
				for tos := range byte(3) {
					out := trains(to, 1, shape.count, shape.seg)
					out[0].Buf = out[0].Buf[:(shape.count-1)*shape.seg+shape.last]
					out[0].TOS = tos
					if n, err := c.Send(append(out, out...)); n != 2 || err != nil {
						t.Fatalf("%v to %v: %v", path.from, path.to, err)
					}
					for range 2 {
						for i := range out[0].Count() {
							checkHeaders(t, packets.next(t), len(out[0].At(i)), c.ID(i), tos)
						}
					}
					if t.Failed() {
						t.Fatalf("%v to %v, NoGSO %v: %d datagrams of %d", path.from, path.to, noGSO, shape.count, shape.seg)
					}
				}
			}
			if c.Caps().GSO == noGSO {
				t.Errorf("after sending: %+v", c.Caps())
			}
			c.Close()
		}
	}
}

// Loopback has the largest MTU that IP allows (the kernel reports 65536 for the device
// and 65535 for the path), so the largest RoCEv2 packets pass. On a link with an MTU of
// 1500 they are refused with an error, with GSO and without.
func TestPathMTUOnALink(t *testing.T) {
	enterNamespace(t)
	ip(t, "link", "set", "lo", "up")
	ip(t, "link", "add", "v0", "mtu", "1500", "type", "veth", "peer", "name", "v1")
	ip(t, "address", "add", "10.77.0.1/24", "dev", "v0")
	ip(t, "address", "add", "fd77::1/64", "dev", "v0", "nodad")
	ip(t, "link", "set", "v0", "up")
	ip(t, "link", "set", "v1", "up")
	ip(t, "neighbor", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v0")
	ip(t, "neighbor", "add", "fd77::2", "lladdr", "02:00:00:00:00:02", "dev", "v0")
	ip(t, "route", "add", "10.78.0.0/24", "via", "10.77.0.2", "mtu", "1300")

	for _, path := range []struct {
		from, to string
		mtu      int
	}{
		{"10.77.0.1:4791", "10.77.0.2:4791", 1500},
		{"10.77.0.1:4791", "10.78.0.1:4791", 1300},
		{"[fd77::1]:4791", "[fd77::2]:4791", 1500},
	} {
		to := netip.MustParseAddrPort(path.to)
		from := netip.MustParseAddrPort(path.from)
		if mtu, err := PathMTU(from.Addr(), to.Addr()); mtu != path.mtu || err != nil {
			t.Errorf("%v to %v: MTU %d, %v; want %d", from, to, mtu, err, path.mtu)
		}
		fits := path.mtu - netconn.Headers(to.Addr())
		for _, o := range openers {
			c, err := o.open(from)
			fatal.If(t, err)
			for _, count := range []int{1, 4} {
				out := trains(to, 1, count, fits)
				if n, err := c.Send(out); n != 1 || err != nil {
					t.Errorf("%s, %v to %v: %d of %d: %v", o.name, from, to, count, fits, err)
				}
				out = append(out, trains(to, 1, count, fits+1)...)
				n, err := c.Send(out)
				if n != 1 || !errors.Is(err, syscall.EMSGSIZE) {
					t.Errorf("%s, %v to %v: %d of %d: sent %d: %v", o.name, from, to, count, fits+1, n, err)
				} else if want := fmt.Sprintf("the path's MTU is %d", path.mtu); !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want it to say that %s", err, want)
				}
			}
			c.Close()
		}
	}
}

func TestPathMTU(t *testing.T) {
	lo := loopbacks[0].Addr()
	if mtu, err := PathMTU(lo, lo); mtu != 65535 || err != nil {
		t.Errorf("loopback: %d, %v", mtu, err)
	}
	for _, bad := range [][2]netip.Addr{{lo, loopbacks[1].Addr()}, {lo, {}}, {{}, lo}} {
		if _, err := PathMTU(bad[0], bad[1]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := PathMTU(netip.MustParseAddr("192.0.2.1"), lo); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("from an address of the documentation range: %v", err)
	}
}
