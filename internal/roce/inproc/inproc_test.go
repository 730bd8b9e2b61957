package inproc

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/packetconn"
)

func buffers(n int) []packetconn.Train {
	d := make([]packetconn.Train, n)
	for i := range d {
		d[i].Buf = make([]byte, packetconn.RecvSize)
	}
	return d
}

// TestTransfer sends trains of all sizes. Those that were received do not change while more are sent from the
// same buffer and received with others.
func TestTransfer(t *testing.T) {
	a, b := Pair(nil)
	defer a.Close()
	defer b.Close()
	out := []packetconn.Train{{Addr: b.LocalAddr(), Seg: 1000, TOS: 2}, {Addr: b.LocalAddr()}}
	var kept []packetconn.Train
	sizes := []int{1, 999, 1000, 1001, smallTrain, smallTrain + 1, 60_000}
	for i, size := range sizes {
		out[0].Buf = append(out[0].Buf[:0], bytes.Repeat([]byte{byte(i)}, size)...)
		out[1].Buf = out[0].Buf
		if n, err := a.Send(out); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		in := buffers(3)
		if n, err := b.Recv(in); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		kept = append(kept, in[:2]...)
	}
	for i, got := range kept {
		want, count := bytes.Repeat([]byte{byte(i / 2)}, sizes[i/2]), 1
		if i%2 == 0 {
			count = (len(want) + 999) / 1000
		}
		if !bytes.Equal(got.Buf, want) || got.Addr != a.LocalAddr() || got.TOS != out[i%2].TOS || got.Count() != count || cap(got.Buf) < packetconn.RecvSize {
			t.Errorf("train %d: %d bytes of %d in %d datagrams from %v, TOS %d", i, len(got.Buf), len(want), got.Count(), got.Addr, got.TOS)
		}
	}
	if got, err := b.Poll(buffers(1)); got != 0 || err != nil {
		t.Errorf("Poll of nothing: %d, %v", got, err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	for _, c := range []struct{ size, fit int }{{60_000, 128}, {100, 1024}, {smallTrain, 1024}, {smallTrain + 1, 128}} {
		a, b := Pair(nil)
		out := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, c.size)}}
		for range 2 { // received trains free their room in the queue
			for range c.fit + 5 {
				if _, err := a.Send(out); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := b.Recv(buffers(c.fit + 5)); got != c.fit || err != nil {
				t.Errorf("%d bytes: %d arrived, %v; want %d", c.size, got, err, c.fit)
			}
		}
		a.Close()
		b.Close()
	}
}

func TestRefused(t *testing.T) {
	a, b := Pair(&Options{MTU: 1500})
	defer b.Close()
	for _, c := range []struct {
		name string
		d    packetconn.Train
		want error
	}{
		{"fits the MTU", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 3*1472), Seg: 1472}, nil},
		{"over the MTU", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 3*1472), Seg: 1473}, syscall.EMSGSIZE},
		{"datagrams", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 1000), Seg: 1}, syscall.EMSGSIZE},
		{"nobody there", packetconn.Train{Addr: netip.MustParseAddrPort("192.0.2.9:1"), Buf: make([]byte, 3)}, nil},
	} {
		n, err := a.Send([]packetconn.Train{c.d})
		if !errors.Is(err, c.want) || (n == 1) != (c.want == nil) {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
	}
	if _, err := b.Recv([]packetconn.Train{{Buf: make([]byte, 10)}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("short buffer: %v", err)
	}
	a.Close()
	if _, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr()}}); err != net.ErrClosed {
		t.Errorf("closed: %v", err)
	}
	if err := a.Close(); err != net.ErrClosed {
		t.Errorf("closed twice: %v", err)
	}
}

func TestListen(t *testing.T) {
	n := NewNetwork(nil)
	addr := netip.MustParseAddrPort("10.0.0.1:4791")
	c, err := n.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen(addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken address: %v", err)
	}
	c.Close()
	if _, err := n.Listen(addr); err != nil {
		t.Errorf("address given back: %v", err)
	}
	for i := range 3 {
		c, err := n.Listen(netip.MustParseAddrPort("[2001:db8::1]:0"))
		if err != nil || int(c.LocalAddr().Port()) != firstPort+i {
			t.Errorf("port 0: %v, %v", c.LocalAddr(), err)
		}
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:1"), netip.MustParseAddrPort("[ff02::1]:1")} {
		if _, err := n.Listen(bad); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
