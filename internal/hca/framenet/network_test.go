package framenet

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

func listen(t testing.TB, n *Network, ip string, vlan int) *Conn {
	t.Helper()
	c, err := n.Listen(Address{IP: netip.MustParseAddr(ip), MAC: MAC{2, 0, 0, 0, 0, 1}, VLAN: vlan})
	fatal.If(t, err)
	return c
}

func trains(n int) []packetconn.Train {
	all := make([]packetconn.Train, n)
	for i := range all {
		all[i].Buf = make([]byte, packetconn.RecvSize)
	}
	return all
}

// The frame of a packet, byte for byte. The checksum of the IP header is the one of RFC 1071,
// computed by hand.
func TestFrame(t *testing.T) {
	var frame []byte
	n := New(func(b []byte) { frame = bytes.Clone(b) })
	c := listen(t, n, "192.0.2.1", 5)
	_, err := c.Send([]packetconn.Train{{
		Addr: netip.MustParseAddrPort("192.0.2.2:4791"), Buf: []byte("RDMA"), TOS: 0x62,
		Route: packetconn.Route{MAC: MAC{2, 0, 0, 0, 0, 2}, SourcePort: 0xc001, HopLimit: 63, Priority: 3},
	}})
	fatal.If(t, err)
	want := []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x60, 5, 8, 0,
		0x45, 0x62, 0, 32, 0, 0, 0x40, 0, 63, 17, 0xb7, 0x67, 192, 0, 2, 1, 192, 0, 2, 2,
		0xc0, 1, 0x12, 0xb7, 0, 12, 0, 0, 'R', 'D', 'M', 'A',
	}
	if !bytes.Equal(frame, want) {
		t.Errorf("frame\n%x, want\n%x", frame, want)
	}
}

// Packets of one sender that follow one another make a train; the last one may be shorter.
func TestTrainsOfOneSender(t *testing.T) {
	n := New(func([]byte) {})
	a, b := listen(t, n, "192.0.2.1", 0), listen(t, n, "192.0.2.2", 0)
	to := packetconn.Train{Addr: b.LocalAddr(), Route: packetconn.Route{MAC: b.Address().MAC}}
	for _, s := range []string{"aaaa", "bbbb", "cc", "dddd", "eeeee"} {
		d := to
		d.Buf = []byte(s)
		if _, err := a.Send([]packetconn.Train{d}); err != nil {
			t.Fatal(err)
		}
	}
	in := trains(4)
	k, err := b.Recv(in)
	if err != nil || k != 3 {
		t.Fatalf("%d trains, %v", k, err)
	}
	for i, want := range []struct {
		text string
		seg  int
	}{{"aaaabbbbcc", 4}, {"dddd", 4}, {"eeeee", 5}} {
		if d := in[i]; string(d.Buf) != want.text || d.Seg != want.seg || d.Addr != a.LocalAddr() {
			t.Errorf("train %d: %q of %d from %v, want %q of %d", i, d.Buf, d.Seg, d.Addr, want.text, want.seg)
		}
	}
	b.Close()
	if _, err := b.Recv(in); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receiving after Close: %v", err)
	}
}

func TestRefused(t *testing.T) {
	n := New(func([]byte) { t.Error("a frame was sent") })
	c := listen(t, n, "192.0.2.1", 0)
	for _, row := range []struct {
		from *Conn
		d    packetconn.Train
		want syscall.Errno
	}{
		{n.Absent(), packetconn.Train{Addr: netip.MustParseAddrPort("192.0.2.2:4791")}, syscall.EADDRNOTAVAIL},
		{c, packetconn.Train{Addr: netip.MustParseAddrPort("192.0.2.2:4791")}, syscall.EHOSTUNREACH},
		{c, packetconn.Train{Addr: netip.MustParseAddrPort("192.0.2.2:4792")}, syscall.EINVAL},
		{c, packetconn.Train{Addr: netip.MustParseAddrPort("[2001:db8::1]:4791")}, syscall.EINVAL},
		{c, packetconn.Train{Addr: netip.MustParseAddrPort("192.0.2.2:4791"), Buf: make([]byte, MaxPacket)}, syscall.EMSGSIZE},
	} {
		if k, err := row.from.Send([]packetconn.Train{row.d}); k != 0 || !errors.Is(err, row.want) {
			t.Errorf("to %v: %d, %v, want %v", row.d.Addr, k, err, row.want)
		}
	}
	for _, a := range []Address{
		{IP: netip.MustParseAddr("0.0.0.0"), MAC: MAC{2}}, {IP: netip.MustParseAddr("ff02::1"), MAC: MAC{2}}, {MAC: MAC{2}},
		{IP: netip.MustParseAddr("192.0.2.9"), MAC: MAC{1}}, {IP: netip.MustParseAddr("192.0.2.9")}, {IP: netip.MustParseAddr("192.0.2.9"), MAC: MAC{2}, VLAN: 4095},
	} {
		if _, err := n.Listen(a); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", a, err)
		}
	}
}

// TestUnreadBytesAreBounded sends to a connection that nobody reads from. The bytes that it keeps
// must be bounded.
func TestUnreadBytesAreBounded(t *testing.T) {
	n := New(func([]byte) {})
	a, b := listen(t, n, "192.0.2.1", 0), listen(t, n, "192.0.2.2", 0)
	d := packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 60000), Seg: 1000, Route: packetconn.Route{MAC: b.Address().MAC}}
	for range 200 {
		if _, err := a.Send([]packetconn.Train{d}); err != nil {
			t.Fatal(err)
		}
	}
	if got := cap(b.queue.bytes); got > 2*queueBytes {
		t.Errorf("%d bytes are kept", got)
	}
	// What is left of the room is used again.
	for in := trains(4); ; {
		if k, err := b.Poll(in); err != nil {
			t.Fatal(err)
		} else if k == 0 {
			break
		}
	}
	if _, err := a.Send([]packetconn.Train{d}); err != nil || b.queue.empty() {
		t.Errorf("nothing arrives in a queue that was emptied: %v", err)
	}
}

// Groups reach their members on both sides of the link, in the group's own VLAN only.
func TestMulticastGroup(t *testing.T) {
	var sent int
	n := New(func(b []byte) { sent++ })
	a := listen(t, n, "192.0.2.1", 0)
	group := netip.MustParseAddr("239.1.2.3")
	in, err := a.Join(group)
	fatal.If(t, err)
	other, err := listen(t, n, "192.0.2.3", 9).Join(group)
	fatal.If(t, err)
	if _, err := a.Send([]packetconn.Train{{Addr: netip.AddrPortFrom(group, udpPort), Buf: []byte("to all")}}); err != nil {
		t.Fatal(err)
	}
	got := trains(1)
	if k, _ := netconn.Of(in).Poll(got); k != 1 || string(got[0].Buf) != "to all" || sent != 1 {
		t.Errorf("%d trains, %d frames", k, sent)
	}
	if k, _ := netconn.Of(other).Poll(got); k != 0 {
		t.Error("a member in another VLAN got it")
	}
	in.Close()
	if len(n.places[place{group, 0, false}]) != 0 {
		t.Error("the group has members after they left")
	}
}

// FuzzReceive damages frames. Every accepted payload must lie inside of its frame and belong to a
// whole packet.
func FuzzReceive(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ip := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, vlan := range []int{0, 5} {
			h := header{to: MAC{2, 0, 0, 0, 0, 1}, vlan: vlan, src: netip.MustParseAddr(ip).Next(), dst: netip.MustParseAddr(ip), srcPort: 7}
			b := make([]byte, maxHeaders+100)
			b = b[:h.put(b, 40)+40]
			f.Add(b)
			b = bytes.Clone(b)
			b[rnd.IntN(len(b))] ^= 0x80
			f.Add(b)
			f.Add(b[:rnd.IntN(len(b))])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		n := New(func([]byte) {})
		c4, c6 := listen(t, n, "192.0.2.1", 0), listen(t, n, "2001:db8::1", 5)
		before := bytes.Clone(frame)
		taken := n.Receive(frame)
		if !bytes.Equal(before, frame) {
			t.Error("the frame was changed")
		}
		in := trains(2)
		got := 0
		for _, c := range []*Conn{c4, c6} {
			k, err := c.Poll(in)
			fatal.If(t, err)
			for i := range in[:k] {
				got++
				if !bytes.Contains(frame, in[i].Buf) {
					t.Error("a payload that is not in the frame")
				}
			}
		}
		if taken != (got == 1) {
			t.Errorf("taken %v, %d packets", taken, got)
		}
	})
}
