package udp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/packetconn"
)

// listenLinux opens a socket and returns it as its concrete type.
func listenLinux(t *testing.T, addr netip.AddrPort, o *Options) *conn {
	t.Helper()
	c, err := Listen(addr, o)
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*conn)
}

// trains returns n trains of count datagrams of seg bytes, with different contents.
func trains(to netip.AddrPort, n, count, seg int) []packetconn.Train {
	d := make([]packetconn.Train, n)
	x := byte(0)
	for i := range d {
		d[i] = packetconn.Train{Addr: to, Buf: make([]byte, count*seg), Seg: seg}
		for k := range d[i].Buf {
			x = x*31 + byte(k>>8) + 7
			d[i].Buf[k] = x
		}
	}
	return d
}

// The kernel may send fewer messages than offered, be interrupted, or have no room. In
// every case each message is sent once and in order.
func TestSendInPieces(t *testing.T) {
	for _, noGSO := range []bool{false, true} {
		a := listenLinux(t, loopbacks[0], &Options{NoGSO: noGSO})
		b := listenLinux(t, loopbacks[0], nil)
		calls := 0
		a.sendmmsg = func(fd uintptr, m []mmsghdr) (int, syscall.Errno) {
			calls++
			switch calls % 4 {
			case 1:
				return sendmmsg(fd, m[:1])
			case 2:
				return -1, unix.EINTR
			case 3:
				return -1, unix.EAGAIN // a timeout, as if SO_SNDTIMEO were set; nothing else causes EAGAIN
			}
			return sendmmsg(fd, m[:min(3, len(m))])
		}
		out := trains(b.LocalAddr(), 7, 5, 100)
		if n, err := a.Send(out); n != len(out) || err != nil {
			t.Fatal(n, err)
		}
		got, _ := receive(t, b, 35)
		for i, p := range got {
			if !bytes.Equal(p, out[i/5].At(i%5)) {
				t.Fatalf("NoGSO %v: datagram %d is another one", noGSO, i)
			}
		}
	}
}

// Poll receives without waiting.
func TestPoll(t *testing.T) {
	a, b := listenLinux(t, loopbacks[0], nil), listenLinux(t, loopbacks[0], nil)
	in := buffers(4)
	if n, err := b.Poll(in); n != 0 || err != nil {
		t.Fatalf("of nothing: %d, %v", n, err)
	}
	out := trains(b.LocalAddr(), 2, 5, 100)
	if _, err := a.Send(out); err != nil {
		t.Fatal(err)
	}
	// On loopback a sent datagram has arrived when Send returns.
	n, err := b.Poll(in)
	if n != 2 || err != nil || !bytes.Equal(in[0].Buf, out[0].Buf) || !bytes.Equal(in[1].Buf, out[1].Buf) {
		t.Fatalf("%d trains, %v", n, err)
	}
	b.Close()
	if n, err := b.Poll(in); n != 0 || err != net.ErrClosed {
		t.Errorf("after Close: %d, %v", n, err)
	}
}

// isGSO reports whether a message requests segmentation.
func isGSO(m *mmsghdr) bool {
	if m.hdr.Controllen == 0 {
		return false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(m.hdr.Control))
	return h.Level == unix.SOL_UDP && h.Type == unix.UDP_SEGMENT
}

// TestGSOFallback sends on a path whose device cannot compute checksums, for which the kernel
// returns EIO for GSO. The datagrams must then be sent without GSO.
func TestGSOFallback(t *testing.T) {
	a := listenLinux(t, loopbacks[0], nil)
	b := listenLinux(t, loopbacks[0], nil)
	if !a.Caps().GSO {
		t.Fatalf("this kernel has GSO since 4.18, but: %+v", a.Caps())
	}
	a.sendmmsg = func(fd uintptr, m []mmsghdr) (int, syscall.Errno) {
		for i := range m {
			if isGSO(&m[i]) {
				if i == 0 {
					return -1, unix.EIO
				}
				return sendmmsg(fd, m[:i])
			}
		}
		return sendmmsg(fd, m)
	}
	if id := a.ID(3); id != 3 {
		t.Errorf("with GSO, ID(3) = %d", id)
	}
	out := trains(b.LocalAddr(), 4, 3, 50)
	out[0].Buf = out[0].Buf[:50] // the first train is sent before GSO fails
	for round := range 2 {
		if n, err := a.Send(out); n != len(out) || err != nil {
			t.Fatal(n, err)
		}
		got, _ := receive(t, b, 10)
		for i, p := range got {
			want := out[0].Buf
			if i > 0 {
				want = out[1+(i-1)/3].At((i - 1) % 3)
			}
			if !bytes.Equal(p, want) {
				t.Fatalf("round %d: datagram %d is another one", round, i)
			}
		}
		if caps := a.Caps(); caps.GSO || !strings.Contains(caps.Degraded, b.LocalAddr().String()) {
			t.Errorf("caps: %+v", caps)
		}
		if id := a.ID(3); id != 0 {
			t.Errorf("without GSO, ID(3) = %d", id)
		}
	}
}

func TestSendErrors(t *testing.T) {
	a := listenLinux(t, loopbacks[0], nil)
	for _, c := range []struct {
		errno, want syscall.Errno
		seg         int
	}{
		{unix.EPERM, unix.EPERM, 0},
		{unix.EHOSTUNREACH, unix.EHOSTUNREACH, 100},
		{unix.EIO, unix.EIO, 0},        // EIO without GSO has another cause
		{unix.EINVAL, unix.EINVAL, 50}, // the datagrams fit the MTU, so EINVAL has another cause
		{unix.EMSGSIZE, unix.EMSGSIZE, 0},
	} {
		calls := 0
		a.sendmmsg = func(fd uintptr, m []mmsghdr) (int, syscall.Errno) {
			if calls++; calls == 1 {
				return sendmmsg(fd, m[:1]) // send the first train
			}
			return -1, c.errno
		}
		out := packetconn.Train{Addr: a.LocalAddr(), Buf: make([]byte, 200), Seg: c.seg}
		n, err := a.Send([]packetconn.Train{out, out, out})
		if n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%v: sent %d: %v", c.errno, n, err)
		}
	}
}

func TestCapsLinux(t *testing.T) {
	c := listenLinux(t, loopbacks[0], &Options{RecvBuffer: 64 << 10, SendBuffer: 64 << 10})
	caps := c.Caps()
	if !caps.GSO || !caps.GRO || !caps.Batch || !caps.ECN || !caps.KnownID || caps.Degraded != "" {
		t.Errorf("caps: %+v", caps)
	}
	// The kernel doubles the requested size, and the limits permit this small one.
	if caps.RecvBuffer != 128<<10 || caps.SendBuffer != 128<<10 {
		t.Errorf("asked for 64 KiB, got %d to receive and %d to send", caps.RecvBuffer, caps.SendBuffer)
	}
	if l := c.Limits(); l.Datagrams != minSegments && l.Datagrams != maxSegments {
		t.Errorf("limits: %+v", l)
	}
}

// A full train at each limit passes as one GSO call in both families. One more byte or
// datagram does not: the limits are the kernel's.
func TestLimitsAreTheKernels(t *testing.T) {
	for _, addr := range loopbacks {
		if addr.Addr().Is6() && !hasIPv6() {
			continue
		}
		a := listenLinux(t, addr, nil)
		b := listenLinux(t, addr, nil)
		gso := 0
		a.sendmmsg = func(fd uintptr, m []mmsghdr) (int, syscall.Errno) {
			for i := range m {
				if isGSO(&m[i]) {
					gso++
				}
			}
			return sendmmsg(fd, m)
		}
		l := a.Limits()
		for _, c := range []struct{ bytes, seg int }{
			{l.Bytes, 4096 + 20}, {l.Bytes, l.Bytes - 1}, {l.Datagrams, 1}, {l.Datagrams * 256, 256},
		} {
			out := packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, c.bytes), Seg: c.seg}
			if n, err := a.Send([]packetconn.Train{out}); n != 1 || err != nil {
				t.Errorf("%d bytes in segments of %d: %v", c.bytes, c.seg, err)
				continue
			}
			receive(t, b, out.Count())
		}
		if gso != 4 {
			t.Errorf("%d of 4 trains were GSO calls", gso)
		}
		a.limits.Datagrams++
		if _, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, l.Datagrams+1), Seg: 1}}); err == nil {
			t.Errorf("the kernel takes more than %d datagrams", l.Datagrams)
		}
	}
}

// TestTOS sends trains with several types of service and hop limits: each train is received with its own.
func TestTOS(t *testing.T) {
	for _, addr := range loopbacks {
		if addr.Addr().Is6() && !hasIPv6() {
			continue
		}
		a := listenLinux(t, addr, nil)
		b := listenLinux(t, addr, nil)
		for _, tos := range []byte{0, 1, 2, 3, 0x68 | 2, 0xff} {
			out := trains(b.LocalAddr(), 1, 4, 100)
			out[0].TOS, out[0].Route.HopLimit = tos, tos
			if _, err := a.Send(out); err != nil {
				t.Fatal(err)
			}
			in := buffers(1)
			in[0].Route = packetconn.Route{SourcePort: 1, HopLimit: 99}
			if _, err := b.Recv(in); err != nil {
				t.Fatal(err)
			}
			if in[0].TOS != tos {
				t.Errorf("%v: sent TOS %#x, received %#x", addr.Addr(), tos, in[0].TOS)
			}
			if r := in[0].Route; r.SourcePort != 0 || r.HopLimit != tos && (tos != 0 || r.HopLimit < 32) {
				t.Errorf("%v: sent hop limit %d, received %+v", addr.Addr(), tos, r)
			}
			if in[0].Count() != 4 {
				t.Errorf("%v: the train came in parts: %d datagrams", addr.Addr(), in[0].Count())
			}
		}
	}
}

// The kernel counts the datagrams that a slow receiver loses.
func TestKernelDropCounter(t *testing.T) {
	a := listenLinux(t, loopbacks[0], nil)
	b := listenLinux(t, loopbacks[0], &Options{RecvBuffer: 4 << 10, NoGRO: true})
	one := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, 1000)}}
	for range 100 {
		if _, err := a.Send(one); err != nil {
			t.Fatal(err)
		}
	}
	in := buffers(batch)
	got := 0
	for b.Dropped() == 0 {
		n, err := b.Recv(in)
		fatal.If(t, err)
		if got += n; got > 100 {
			t.Fatal("more came than was sent")
		}
		// The count arrives with the next datagram that finds room.
		if _, err := a.Send(one); err != nil {
			t.Fatal(err)
		}
	}
	if d := b.Dropped(); d >= 200 {
		t.Errorf("%d dropped", d)
	}
}

func TestZones(t *testing.T) {
	var z zones
	var s unix.RawSockaddrInet6
	for _, a := range []string{"127.0.0.1:4791", "[::1]:1", "[fe80::1%lo]:65535", "[fe80::1%77777]:2", "[2001:db8::1]:3"} {
		want := netip.MustParseAddrPort(a)
		n := z.put(&s, want)
		if size := map[bool]uint32{true: unix.SizeofSockaddrInet4, false: unix.SizeofSockaddrInet6}[want.Addr().Is4()]; n != size {
			t.Errorf("%v takes %d bytes, want %d", want, n, size)
		}
		if got := z.take(&s); got != want {
			t.Errorf("%v came back as %v", want, got)
		}
	}
	s.Family = unix.AF_UNIX
	if got := z.take(&s); got.IsValid() {
		t.Errorf("an address of no IP family became %v", got)
	}
}

func TestParseControl(t *testing.T) {
	var b [controlWords]uint64
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	n := putSegment(&b, 0, 1044)
	n = putTOS(&b, n, true, 0x6a)
	// The control messages for the segment size differ: UDP_SEGMENT has 2 bytes,
	// UDP_GRO has 4.
	if a := parseControl(raw[:n]); a != (ancillary{tos: 0x6a}) {
		t.Errorf("%+v", a)
	}
	p, n := putHeader(&b, 0, unix.SOL_UDP, unix.UDP_GRO, 4)
	*(*int32)(p) = 1044
	n = putTOS(&b, n, false, 3)
	p, n = putHeader(&b, n, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 4)
	*(*uint32)(p) = 5
	if a := parseControl(raw[:n]); a != (ancillary{seg: 1044, tos: 3, drops: 5, hasDrops: true}) {
		t.Errorf("%+v", a)
	}
	// Truncation at any length preserves the complete messages.
	for cut := range n {
		a := parseControl(raw[:cut])
		if whole := cut >= unix.CmsgLen(4); (a.seg == 1044) != whole {
			t.Errorf("cut to %d bytes: %+v", cut, a)
		}
	}
	// The parser of x/sys/unix must return the same messages.
	ms, err := unix.ParseSocketControlMessage(raw[:n])
	if err != nil || len(ms) != 3 {
		t.Errorf("%d messages, %v", len(ms), err)
	}
}

// FuzzParseControl compares the parser with that of x/sys/unix where the latter accepts
// the input. On other input it must only return.
func FuzzParseControl(f *testing.F) {
	var b [controlWords]uint64
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&b)), unsafe.Sizeof(b))
	f.Add([]byte{})
	p, n := putHeader(&b, 0, unix.SOL_UDP, unix.UDP_GRO, 4)
	*(*int32)(p) = 4116
	f.Add(bytes.Clone(raw[:n]))
	n = putTOS(&b, n, true, 1)
	f.Add(bytes.Clone(raw[:n]))
	n = putHops(&b, n, true, 17)
	f.Add(bytes.Clone(raw[:n]))
	n = putTOS(&b, n, false, 2)
	p, n = putHeader(&b, n, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 4)
	*(*uint32)(p) = 9
	f.Add(bytes.Clone(raw[:n]))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := parseControl(in)
		ms, err := unix.ParseSocketControlMessage(in)
		if err != nil {
			return
		}
		var want ancillary
		for _, m := range ms {
			word := func() uint32 { return *(*uint32)(unsafe.Pointer(&bytes.Clone(m.Data[:4])[0])) }
			switch {
			case m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO && len(m.Data) >= 4:
				want.seg = max(0, int(int32(word())))
			case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TOS && len(m.Data) >= 1:
				want.tos = m.Data[0]
			case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_TCLASS && len(m.Data) >= 4:
				want.tos = byte(word())
			case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL && len(m.Data) >= 4,
				m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4:
				want.hops = byte(word())
			case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_RXQ_OVFL && len(m.Data) >= 4:
				want.drops, want.hasDrops = word(), true
			}
		}
		if got != want {
			t.Errorf("%x: %+v, want %+v", in, got, want)
		}
	})
}
