package udp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// opener opens one kind of socket, so that every test runs with each kind.
type opener struct {
	name string
	open func(netip.AddrPort) (netconn.Conn, error)
}

var openers = []opener{
	{"fast", func(a netip.AddrPort) (netconn.Conn, error) { return Listen(a, nil) }},
	{"noGSO", func(a netip.AddrPort) (netconn.Conn, error) { return Listen(a, &Options{NoGSO: true}) }},
	{"noGRO", func(a netip.AddrPort) (netconn.Conn, error) { return Listen(a, &Options{NoGRO: true}) }},
	{"portable", func(a netip.AddrPort) (netconn.Conn, error) {
		return listenPortable(a, Options{RecvBuffer: DefaultRecvBuffer, SendBuffer: DefaultSendBuffer})
	}},
}

var loopbacks = []netip.AddrPort{
	netip.MustParseAddrPort("127.0.0.1:0"),
	netip.MustParseAddrPort("[::1]:0"),
}

// eachConn runs f over every kind of socket and both families.
func eachConn(t *testing.T, f func(t *testing.T, open func() netconn.Conn)) {
	for _, o := range openers {
		for _, addr := range loopbacks {
			family := "IPv4"
			if addr.Addr().Is6() {
				family = "IPv6"
				if !hasIPv6() {
					continue
				}
			}
			t.Run(o.name+"/"+family, func(t *testing.T) {
				f(t, func() netconn.Conn {
					c, err := o.open(addr)
					fatal.If(t, err)
					t.Cleanup(func() { c.Close() })
					return c
				})
			})
		}
	}
}

func hasIPv6() bool {
	c, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// buffers returns n trains to receive into.
func buffers(n int) []packetconn.Train {
	d := make([]packetconn.Train, n)
	for i := range d {
		d[i].Buf = make([]byte, packetconn.RecvSize)
	}
	return d
}

// receive returns n datagrams.
func receive(t *testing.T, c netconn.Conn, n int) (datagrams [][]byte, from netip.AddrPort) {
	t.Helper()
	in := buffers(4)
	for len(datagrams) < n {
		got, err := c.Recv(in)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(datagrams), n, err)
		}
		for i := range in[:got] {
			from = in[i].Addr
			for k := range in[i].Count() {
				datagrams = append(datagrams, bytes.Clone(in[i].At(k)))
			}
		}
	}
	return datagrams, from
}

func TestTransfer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	eachConn(t, func(t *testing.T, open func() netconn.Conn) {
		a, b := open(), open()
		for _, seg := range []int{1, 2, 20, 64, 63, 256 + 16, 1024 + 20, 4096 + 20, 8000} {
			for _, count := range []int{1, 2, 3, 15, 64} {
				size := min(seg*count, a.Limits().Bytes/seg*seg) - seg/2
				buf := make([]byte, size)
				for i := range buf {
					buf[i] = byte(rng.Uint32())
				}
				out := packetconn.Train{Addr: b.LocalAddr(), Buf: buf, Seg: seg}
				// The second train shows that the boundary of the first
				// is preserved.
				n, err := a.Send([]packetconn.Train{out, out})
				if n != 2 || err != nil {
					t.Fatalf("%d segments of %d: sent %d: %v", count, seg, n, err)
				}
				got, from := receive(t, b, 2*out.Count())
				if from != a.LocalAddr() {
					t.Fatalf("from %v, want %v", from, a.LocalAddr())
				}
				for i, p := range got {
					if want := out.At(i % out.Count()); !bytes.Equal(p, want) {
						t.Fatalf("%d segments of %d: datagram %d has %d bytes, want %d, or other contents", count, seg, i, len(p), len(want))
					}
				}
			}
		}
	})
}

func TestEmptyDatagram(t *testing.T) {
	eachConn(t, func(t *testing.T, open func() netconn.Conn) {
		a, b := open(), open()
		if n, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr()}, {Addr: b.LocalAddr(), Buf: []byte("x")}}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		got, _ := receive(t, b, 2)
		if len(got[0]) != 0 || string(got[1]) != "x" {
			t.Errorf("got %q", got)
		}
	})
}

func TestClose(t *testing.T) {
	eachConn(t, func(t *testing.T, open func() netconn.Conn) {
		c := open()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if n, err := c.Recv(buffers(1)); n != 0 || err != net.ErrClosed {
					t.Errorf("Recv after Close: %d, %v", n, err)
				}
			})
		}
		time.Sleep(time.Millisecond) // lets some of them block; the result is the same if they do not
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n, err := c.Send([]packetconn.Train{{Addr: c.LocalAddr(), Buf: []byte("x")}}); n != 0 || err != net.ErrClosed {
			t.Errorf("Send after Close: %d, %v", n, err)
		}
		if err := c.Close(); err != net.ErrClosed {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestRefused(t *testing.T) {
	eachConn(t, func(t *testing.T, open func() netconn.Conn) {
		a := open()
		good := packetconn.Train{Addr: a.LocalAddr(), Buf: []byte("good")}
		l := a.Limits()
		for _, c := range []struct {
			name string
			d    packetconn.Train
			want error
		}{
			{"bytes", packetconn.Train{Addr: a.LocalAddr(), Buf: make([]byte, l.Bytes+1), Seg: 4096}, syscall.EMSGSIZE},
			{"datagrams", packetconn.Train{Addr: a.LocalAddr(), Buf: make([]byte, l.Datagrams+1), Seg: 1}, syscall.EMSGSIZE},
			{"no address", packetconn.Train{Buf: []byte("x")}, syscall.EINVAL},
		} {
			n, err := a.Send([]packetconn.Train{good, c.d, good})
			if n != 1 || !errors.Is(err, c.want) {
				t.Errorf("%s: sent %d: %v, want %v", c.name, n, err, c.want)
			}
			receive(t, a, 1) // the valid train before it
		}
		if n, err := a.Recv([]packetconn.Train{{Buf: make([]byte, packetconn.RecvSize-1)}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("short buffer: %d, %v", n, err)
		}
		if n, err := a.Send(nil); n != 0 || err != nil {
			t.Errorf("nothing to send: %d, %v", n, err)
		}
		if n, err := a.Recv(nil); n != 0 || err != nil {
			t.Errorf("no buffers: %d, %v", n, err)
		}
	})
}

func TestListenRefuses(t *testing.T) {
	for _, addr := range []netip.AddrPort{
		{},
		netip.MustParseAddrPort("0.0.0.0:4791"),
		netip.MustParseAddrPort("[::]:4791"),
		netip.MustParseAddrPort("224.0.0.1:4791"),
		netip.MustParseAddrPort("255.255.255.255:4791"),
		netip.MustParseAddrPort("127.255.255.255:4791"), // the broadcast address of loopback
	} {
		if _, err := Listen(addr, nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v, want EINVAL", addr, err)
		}
	}
	if _, err := Listen(netip.MustParseAddrPort("192.0.2.1:4791"), nil); err == nil {
		t.Error("an address of the documentation range is nobody's")
	}
	c, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"), nil)
	fatal.If(t, err)
	defer c.Close()
	if _, err := Listen(c.LocalAddr(), nil); err == nil {
		t.Error("a port was given out twice")
	} else if runtime.GOOS != "windows" && !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("port in use: %v", err)
	}
}

func TestAllocations(t *testing.T) {
	eachConn(t, func(t *testing.T, open func() netconn.Conn) {
		a, b := open(), open()
		out := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, 8*1024), Seg: 1024}}
		in := buffers(2)
		allocs := testing.AllocsPerRun(100, func() {
			if _, err := a.Send(out); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < 8; {
				got, err := b.Recv(in)
				fatal.If(t, err)
				for i := range in[:got] {
					n += in[i].Count()
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%v allocations per Send and Recv", allocs)
		}
	})
}

func TestEnvironment(t *testing.T) {
	for v, on := range map[string]bool{"": false, "0": false, "false": false, "1": true, "true": true, "yes": true} {
		t.Setenv("SOFTMKEY_NO_GSO", v)
		if envOn("SOFTMKEY_NO_GSO") != on {
			t.Errorf("SOFTMKEY_NO_GSO=%q: want %v", v, on)
		}
	}
	t.Setenv("SOFTMKEY_NO_GSO", "1")
	t.Setenv("SOFTMKEY_NO_GRO", "1")
	c, err := Listen(loopbacks[0], nil)
	fatal.If(t, err)
	defer c.Close()
	if caps := c.Caps(); caps.GSO || caps.GRO || c.ID(3) != 0 {
		t.Errorf("switched off, but %+v, ID(3) = %d", caps, c.ID(3))
	}
}

func TestInterfaceMTU(t *testing.T) {
	// Every IPv6 link has an MTU of at least 1280.
	if mtu, err := interfaceMTU(loopbacks[0].Addr()); mtu < 1280 || err != nil {
		t.Errorf("loopback: %d, %v", mtu, err)
	}
	if _, err := interfaceMTU(netip.MustParseAddr("192.0.2.1")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("an address of the documentation range: %v", err)
	}
}

func TestLastAddr(t *testing.T) {
	if got := lastAddr(netip.MustParsePrefix("10.1.2.3/22")); got != netip.MustParseAddr("10.1.3.255") {
		t.Error(got)
	}
}
