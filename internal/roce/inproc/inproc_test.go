package inproc

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/packetconn"
)

func buffers(n int) []packetconn.Train {
	d := make([]packetconn.Train, n)
	for i := range d {
		d[i].Buf = make([]byte, packetconn.RecvSize)
	}
	return d
}

func TestTransfer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	a, b := Pair(nil)
	defer a.Close()
	defer b.Close()
	var want [][]byte
	in := buffers(3)
	for round := range 200 {
		// Mix trains of all sizes, so that both kinds of buffers are reused many
		// times.
		var out []packetconn.Train
		for range 1 + rng.IntN(6) {
			seg := 1 + rng.IntN(5000)
			size := rng.IntN(min(64*seg, a.Limits().Bytes) + 1)
			buf := make([]byte, size)
			for i := range buf {
				buf[i] = byte(rng.Uint32())
			}
			out = append(out, packetconn.Train{Addr: b.LocalAddr(), Buf: buf, Seg: seg, TOS: byte(round)})
			want = append(want, bytes.Clone(buf))
		}
		if n, err := a.Send(out); n != len(out) || err != nil {
			t.Fatal(n, err)
		}
		for i := range out {
			clear(out[i].Buf) // Send must not keep the buffer
		}
		for k := 0; k < len(out); {
			n, err := b.Recv(in)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				got := &in[i]
				if !bytes.Equal(got.Buf, want[0]) || got.Addr != a.LocalAddr() || got.TOS != byte(round) || got.Count() != out[k].Count() {
					t.Fatalf("round %d, train %d: %d bytes in %d datagrams from %v, TOS %d", round, k, len(got.Buf), got.Count(), got.Addr, got.TOS)
				}
				if cap(got.Buf) < packetconn.RecvSize {
					t.Fatalf("Recv left a buffer of %d bytes", cap(got.Buf))
				}
				want = want[1:]
				k++
			}
		}
	}
	if c := b.Counters(); c.Lost != 0 {
		t.Errorf("%d datagrams lost", c.Lost)
	}
	if c := a.Counters(); c.Trains == 0 || c.Datagrams < c.Trains || c.Unreachable != 0 {
		t.Errorf("counters: %+v", c)
	}
}

// A buffer has one owner: a received train does not change while more trains are sent and
// received with other buffers.
func TestExchange(t *testing.T) {
	a, b := Pair(nil)
	defer a.Close()
	defer b.Close()
	send := func(fill byte) {
		buf := bytes.Repeat([]byte{fill}, 60_000)
		if _, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr(), Buf: buf}}); err != nil {
			t.Fatal(err)
		}
	}
	var kept []packetconn.Train
	for i := range 10 {
		in := buffers(1)
		send(byte(i))
		if _, err := b.Recv(in); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, in...)
	}
	for i, d := range kept {
		if want := bytes.Repeat([]byte{byte(i)}, 60_000); !bytes.Equal(d.Buf, want) {
			t.Errorf("train %d changed after it was received", i)
		}
	}
}

// A sender that sets Swap gets another buffer in exchange. Writing to that buffer must
// not change received trains.
func TestSwap(t *testing.T) {
	a, b := Pair(nil)
	defer a.Close()
	defer b.Close()
	out := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, packetconn.RecvSize), Swap: true}}
	var kept []packetconn.Train
	for i := range 10 {
		for _, n := range []int{100, 60_000} {
			out[0].Buf = append(out[0].Buf[:0], bytes.Repeat([]byte{byte(i)}, n)...)
			if _, err := a.Send(out); err != nil {
				t.Fatal(err)
			}
			if cap(out[0].Buf) < packetconn.RecvSize {
				t.Fatalf("got %d bytes in exchange", cap(out[0].Buf))
			}
			clear(out[0].Buf)
			in := buffers(1)
			if got, err := b.Poll(in); got != 1 || err != nil {
				t.Fatal(got, err)
			}
			kept = append(kept, in...)
		}
	}
	for i, d := range kept {
		if want := bytes.Repeat([]byte{byte(i / 2)}, len(d.Buf)); !bytes.Equal(d.Buf, want) {
			t.Errorf("train %d changed after it was received", i)
		}
	}
	if got, err := b.Poll(buffers(1)); got != 0 || err != nil {
		t.Errorf("Poll of nothing: %d, %v", got, err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	for _, c := range []struct{ size, fit int }{{60_000, 4}, {100, 32}, {smallBuffer, 32}, {smallBuffer + 1, 4}} {
		a, b := Pair(&Options{Queue: 4 * largeBuffer})
		out := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, c.size)}}
		for range c.fit + 5 {
			if _, err := a.Send(out); err != nil {
				t.Fatal(err)
			}
		}
		if lost := b.Counters().Lost; lost != 5 {
			t.Errorf("%d bytes: %d lost, want 5", c.size, lost)
		}
		// Received trains free their room in the queue.
		in := buffers(1)
		for range c.fit {
			if _, err := b.Recv(in); err != nil {
				t.Fatal(err)
			}
		}
		for range c.fit {
			a.Send(out)
		}
		if lost := b.Counters().Lost; lost != 5 {
			t.Errorf("%d bytes: %d lost after making room, want 5", c.size, lost)
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
		{"single over the MTU", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 1473)}, syscall.EMSGSIZE},
		{"bytes", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 66_000), Seg: 1000}, syscall.EMSGSIZE},
		{"datagrams", packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 1000), Seg: 1}, syscall.EMSGSIZE},
		{"family", packetconn.Train{Addr: netip.MustParseAddrPort("[::1]:1"), Buf: make([]byte, 1)}, syscall.EINVAL},
	} {
		n, err := a.Send([]packetconn.Train{c.d})
		if !errors.Is(err, c.want) || (n == 1) != (c.want == nil) {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
	}
	if _, err := b.Recv([]packetconn.Train{{Buf: make([]byte, 10)}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("short buffer: %v", err)
	}
	if _, err := a.Send([]packetconn.Train{{Addr: netip.MustParseAddrPort("192.0.2.9:1"), Buf: make([]byte, 3)}}); err != nil {
		t.Errorf("nobody there: %v", err)
	}
	if c := a.Counters(); c.Unreachable != 1 {
		t.Errorf("counters: %+v", c)
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
	seen := map[netip.AddrPort]bool{}
	for range 10 {
		c, err := n.Listen(netip.MustParseAddrPort("[2001:db8::1]:0"))
		if err != nil {
			t.Fatal(err)
		}
		if seen[c.LocalAddr()] || c.LocalAddr().Port() == 0 {
			t.Errorf("port %v", c.LocalAddr())
		}
		seen[c.LocalAddr()] = true
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:1"), netip.MustParseAddrPort("[ff02::1]:1")} {
		if _, err := n.Listen(bad); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Recv is durably blocked for synctest: time advances while it waits. Close ends it.
func TestSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(nil)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				in := buffers(1)
				for {
					if _, err := b.Recv(in); err != nil {
						if err != net.ErrClosed {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Hour)
		if _, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr(), Buf: []byte("x")}}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		b.Close()
		wg.Wait()
		a.Close()
	})
}

// Several senders and receivers run at once, for the race detector. The queue has room
// for all trains, so none may be lost.
func TestConcurrent(t *testing.T) {
	const senders, receivers, each = 4, 3, 50
	n := NewNetwork(&Options{Queue: senders * each * largeBuffer})
	to, err := n.Listen(netip.MustParseAddrPort("10.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	var rx, tx sync.WaitGroup
	var mu sync.Mutex
	got := 0
	all := make(chan struct{})
	for range receivers {
		rx.Go(func() {
			in := buffers(4)
			for {
				k, err := to.Recv(in)
				if err != nil {
					return
				}
				for i := range k {
					for j, b := range in[i].Buf {
						if b != in[i].Buf[0] {
							t.Errorf("train mixed up at byte %d", j)
							break
						}
					}
				}
				mu.Lock()
				if got += k; got == senders*each {
					close(all)
				}
				mu.Unlock()
			}
		})
	}
	for s := range senders {
		tx.Go(func() {
			c, err := n.Listen(netip.MustParseAddrPort("10.0.0.2:0"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for i := range each {
				size := 100
				if i%2 == 0 {
					size = 20_000
				}
				if _, err := c.Send([]packetconn.Train{{Addr: to.LocalAddr(), Buf: bytes.Repeat([]byte{byte(s*each + i)}, size)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tx.Wait()
	<-all
	to.Close()
	rx.Wait()
}

func TestAllocations(t *testing.T) {
	a, b := Pair(nil)
	defer a.Close()
	defer b.Close()
	out := []packetconn.Train{{Addr: b.LocalAddr(), Buf: make([]byte, 100)}, {Addr: b.LocalAddr(), Buf: make([]byte, 60_000), Seg: 1000}}
	in := buffers(2)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := a.Send(out); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Recv(in); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per Send and Recv", n)
	}
}

func BenchmarkTrain(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"64B", 64}, {"4KiB", 4096}, {"64KiB", 64_000}} {
		b.Run(c.name, func(b *testing.B) {
			tx, rx := Pair(nil)
			defer tx.Close()
			defer rx.Close()
			out := []packetconn.Train{{Addr: rx.LocalAddr(), Buf: make([]byte, c.size), Seg: 4096 + 20}}
			in := buffers(1)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			for b.Loop() {
				tx.Send(out)
				rx.Recv(in)
			}
		})
		// Two goroutines with a window, as a transport uses the network.
		b.Run(c.name+"/stream", func(b *testing.B) {
			tx, rx := Pair(nil)
			defer tx.Close()
			out := []packetconn.Train{{Addr: rx.LocalAddr(), Buf: make([]byte, c.size), Seg: 4096 + 20}}
			const window = 32
			credit := make(chan struct{}, window)
			var wg sync.WaitGroup
			wg.Go(func() {
				in := buffers(8)
				for {
					n, err := rx.Recv(in)
					if err != nil {
						return
					}
					for range n {
						<-credit
					}
				}
			})
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			for b.Loop() {
				credit <- struct{}{}
				tx.Send(out)
			}
			rx.Close()
			wg.Wait()
		})
	}
}
