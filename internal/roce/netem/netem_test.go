package netem

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

const size = 40 // bytes of a numbered datagram

// numbered returns a train of datagrams that each begin with their number. The remaining
// bytes derive from it, so damage is detected.
func numbered(to netip.AddrPort, first, n int) packetconn.Train {
	d := packetconn.Train{Addr: to, Seg: size}
	for i := range n {
		d.Buf = append(d.Buf, datagram(first+i)...)
	}
	return d
}

func datagram(n int) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(n))
	for rng := rand.New(rand.NewPCG(uint64(n), 0)); len(p) < size; {
		p = append(p, byte(rng.Uint32()))
	}
	return p
}

// collector records received datagrams until its connection is closed.
type collector struct {
	c    packetconn.Conn
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  [][]byte
	when []time.Time
}

func collect(c packetconn.Conn) *collector {
	r := &collector{c: c}
	r.wg.Go(func() {
		in := []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}, {Buf: make([]byte, packetconn.RecvSize)}}
		for {
			n, err := c.Recv(in)
			if err != nil {
				return
			}
			r.mu.Lock()
			for i := range n {
				for k := range in[i].Count() {
					r.got = append(r.got, bytes.Clone(in[i].At(k)))
					r.when = append(r.when, time.Now())
				}
			}
			r.mu.Unlock()
		}
	})
	return r
}

// numbers returns the numbers of the undamaged datagrams, in order of arrival.
func (r *collector) numbers() []int {
	var n []int
	for _, p := range r.got {
		n = append(n, int(binary.BigEndian.Uint32(p)))
	}
	return n
}

// exchange sends n numbered datagrams in trains of ten with the given faults, and returns
// those that arrived within a minute.
func exchange(t *testing.T, n int, seed uint64, f Faults, opts *Options) (*collector, Counters) {
	var r *collector
	var counters Counters
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(seed, f, opts)
		r = collect(b)
		for i := 0; i < n; i += 10 {
			if k, err := a.Send([]packetconn.Train{numbered(b.LocalAddr(), i, min(10, n-i))}); k != 1 || err != nil {
				t.Fatal(k, err)
			}
			synctest.Wait() // lets the receiver keep up
			if f.Latency > 0 {
				// Datagrams that were sent at one instant arrive at one instant, and overflow
				// the receiver's queue if the receiver does not run in between.
				time.Sleep(time.Microsecond)
			}
		}
		time.Sleep(time.Minute)
		counters = a.Counters()
		a.Close()
		b.Close()
		r.wg.Wait()
	})
	return r, counters
}

func inOrder(n int) []int {
	var s []int
	for i := range n {
		s = append(s, i)
	}
	return s
}

func TestGoodNetwork(t *testing.T) {
	r, c := exchange(t, 95, 1, Faults{}, nil)
	if got := r.numbers(); !slices.Equal(got, inOrder(95)) {
		t.Errorf("got %v", got)
	}
	if c != (Counters{Datagrams: 95, Passed: 95}) {
		t.Error(c)
	}
}

// For each fault alone, the counters must match the datagrams received.
func TestFaults(t *testing.T) {
	const n, p = 5000, 0.1
	whole := func(r *collector) (whole, damaged, short int) {
		for _, g := range r.got {
			switch {
			case len(g) < size:
				short++
			case bytes.Equal(g, datagram(int(binary.BigEndian.Uint32(g)))):
				whole++
			default:
				damaged++
			}
		}
		return
	}
	for _, c := range []struct {
		name  string
		f     Faults
		count func(Counters) uint64
		check func(t *testing.T, r *collector, k int)
	}{
		{"loss", Faults{Loss: p}, func(c Counters) uint64 { return c.Lost }, func(t *testing.T, r *collector, k int) {
			if got := r.numbers(); len(got) != n-k || !slices.IsSorted(got) {
				t.Errorf("%d came", len(got))
			}
		}},
		{"duplicate", Faults{Duplicate: p}, func(c Counters) uint64 { return c.Duplicated }, func(t *testing.T, r *collector, k int) {
			got := r.numbers()
			if len(got) != n+k || !slices.IsSorted(got) || len(slices.Compact(got)) != n {
				t.Errorf("%d came", len(got))
			}
		}},
		{"reorder", Faults{Reorder: p}, func(c Counters) uint64 { return c.Reordered }, func(t *testing.T, r *collector, k int) {
			got := r.numbers()
			late := 0
			highest := -1
			for _, x := range got {
				if x < highest {
					late++
				}
				highest = max(highest, x)
			}
			// Two datagrams that are held at the same time may leave in their
			// original order.
			if late < k*8/10 || late > k {
				t.Errorf("%d of %d came after a later one", late, k)
			}
			slices.Sort(got)
			if !slices.Equal(got, inOrder(n)) {
				t.Errorf("%d came", len(got))
			}
		}},
		{"corrupt", Faults{Corrupt: p, Flips: 3}, func(c Counters) uint64 { return c.Corrupted }, func(t *testing.T, r *collector, k int) {
			good, damaged, short := whole(r)
			if good != n-k || damaged != k || short != 0 {
				t.Errorf("%d whole, %d damaged, %d short", good, damaged, short)
			}
			seen := map[int]bool{}
			for i, g := range r.got { // the order is unchanged
				flips := 0
				for j, b := range datagram(i) {
					flips += bits.OnesCount8(b ^ g[j])
				}
				seen[flips] = true
			}
			for flips := range 4 {
				if !seen[flips] {
					t.Errorf("none with %d flips", flips)
				}
			}
			if len(seen) != 4 {
				t.Errorf("flips: %v", seen)
			}
		}},
		{"truncate", Faults{Truncate: p}, func(c Counters) uint64 { return c.Truncated }, func(t *testing.T, r *collector, k int) {
			good, damaged, short := whole(r)
			if good != n-k || damaged != 0 || short != k {
				t.Errorf("%d whole, %d damaged, %d short", good, damaged, short)
			}
			for i, g := range r.got {
				if !bytes.Equal(g, datagram(i)[:len(g)]) {
					t.Fatalf("datagram %d is not the start of what was sent", i)
				}
			}
		}},
		{"delay", Faults{Delay: p, MaxDelay: time.Second}, func(c Counters) uint64 { return c.Delayed }, func(t *testing.T, r *collector, k int) {
			got := r.numbers()
			if start := r.when[0]; r.when[n-1].Sub(start) > time.Second {
				t.Errorf("the last one came after %v", r.when[n-1].Sub(start))
			}
			slices.Sort(got)
			if !slices.Equal(got, inOrder(n)) {
				t.Errorf("%d came", len(got))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const seed = 7
			r, counters := exchange(t, n, seed, c.f, nil)
			k := c.count(counters)
			// Six standard deviations of a binomial distribution.
			if diff := math.Abs(float64(k) - n*p); diff > 6*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%d faults in %d datagrams", k, n)
			}
			if counters.Datagrams != n || counters.Passed != n-k || counters.Failed != 0 {
				t.Error(counters)
			}
			c.check(t, r, int(k))

			again, _ := exchange(t, n, seed, c.f, nil)
			if !slices.EqualFunc(r.got, again.got, bytes.Equal) {
				t.Error("the same seed did something else")
			}
			other, _ := exchange(t, n, seed+1, c.f, nil)
			if slices.EqualFunc(r.got, other.got, bytes.Equal) {
				t.Error("another seed did the same")
			}
		})
	}
}

func TestAllFaultsTogether(t *testing.T) {
	const n = 2000
	f := Faults{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Truncate: 0.1, Delay: 0.1, Latency: 5 * time.Millisecond}
	r, c := exchange(t, n, 11, f, nil)
	if want := n - int(c.Lost) + int(c.Duplicated); len(r.got) != want {
		t.Errorf("%d came, want %d: %v", len(r.got), want, c)
	}
	if sum := c.Passed + c.Lost + c.Duplicated + c.Reordered + c.Corrupted + c.Truncated + c.Delayed; sum != n {
		t.Errorf("%d datagrams: %v", sum, c)
	}
}

func TestFilterActions(t *testing.T) {
	actions := map[uint64]Action{0: Lose, 2: Duplicate, 4: Reorder, 19: Reorder, 12: Truncate, 13: Corrupt, 14: Pass}
	r, c := exchange(t, 20, 1, Faults{}, &Options{
		Filter: func(n uint64, _ netip.AddrPort, p []byte) Action {
			if got := binary.BigEndian.Uint32(p); uint64(got) != n {
				t.Errorf("datagram %d is called %d", got, n)
			}
			return actions[n]
		},
	})
	want := []int{1, 2, 2, 3, 5, 6, 7, 4, 8, 9, 10, 11} // three overtake datagram 4
	if got := r.numbersUntil(len(want)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// No datagram overtakes the last one, so it arrives after the hold time.
	last := len(r.got) - 1
	if !bytes.Equal(r.got[last], datagram(19)) || r.when[last].Sub(r.when[0]) != time.Millisecond {
		t.Errorf("last: %x after %v", r.got[last], r.when[last].Sub(r.when[0]))
	}
	if c != (Counters{Datagrams: 20, Passed: 14, Lost: 1, Duplicated: 1, Reordered: 2, Corrupted: 1, Truncated: 1}) {
		t.Error(c)
	}
}

func (r *collector) numbersUntil(n int) []int {
	short := &collector{got: r.got[:n]}
	return short.numbers()
}

func TestLatencyKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(1, Faults{Latency: 3 * time.Second}, nil)
		r := collect(b)
		start := time.Now()
		for i := range 100 {
			out := numbered(b.LocalAddr(), i, 1)
			if _, err := a.Send([]packetconn.Train{out}); err != nil {
				t.Fatal(err)
			}
			clear(out.Buf) // Send must not keep the buffer
			if i == 50 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		a.Close()
		b.Close()
		r.wg.Wait()
		if got := r.numbers(); !slices.Equal(got, inOrder(100)) {
			t.Errorf("got %v", got)
		}
		for i, w := range r.when {
			want := 3 * time.Second
			if i > 50 {
				want += time.Second
			}
			if w.Sub(start) != want {
				t.Fatalf("datagram %d took %v", i, w.Sub(start))
			}
		}
	})
}

func TestVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(1, Faults{}, nil)
		r := collect(b)
		send := func(n int) {
			if _, err := a.Send([]packetconn.Train{numbered(b.LocalAddr(), n, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		send(0)
		a.SetFaults(Faults{Loss: 1})
		send(1)
		a.SetFaults(Faults{})
		send(2)
		synctest.Wait()
		a.Close()
		b.Close()
		r.wg.Wait()
		if got := r.numbers(); !slices.Equal(got, []int{0, 2}) {
			t.Errorf("got %v", got)
		}
		if _, err := a.Send(nil); err != net.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestPanics(t *testing.T) {
	for _, f := range []Faults{{Loss: -0.1}, {Loss: math.NaN()}, {Loss: 0.6, Corrupt: 0.6}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", f)
				}
			}()
			NewNetwork(1, f, nil)
		}()
	}
}

// The faults also work over real sockets.
func TestOverUDP(t *testing.T) {
	listen := func() packetconn.Conn {
		c, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), nil)
		fatal.If(t, err)
		return c
	}
	a, b := Wrap(listen(), 5, Faults{Loss: 0.2, Duplicate: 0.1, Reorder: 0.2}, nil), listen()
	defer a.Close()
	r := collect(b)
	for i := range 20 {
		if _, err := a.Send([]packetconn.Train{numbered(b.LocalAddr(), 10*i, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	c := a.Counters()
	want := int(c.Datagrams - c.Lost + c.Duplicated)
	for got := 0; got < want; {
		time.Sleep(time.Millisecond)
		r.mu.Lock()
		got = len(r.got)
		r.mu.Unlock()
	}
	b.Close()
	r.wg.Wait()
	if len(r.got) != want {
		t.Errorf("%d came, want %d: %v", len(r.got), want, c)
	}
}

// TestMulticast joins a group through a faulty connection to a UDP socket.
func TestMulticast(t *testing.T) {
	inner, err := udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), nil)
	fatal.If(t, err)
	n := uint64(0)
	c := Wrap(inner, 1, Faults{}, &Options{Filter: func(k uint64, _ netip.AddrPort, _ []byte) Action {
		if n = k; k == 0 {
			return Lose
		}
		return Pass
	}})
	defer c.Close()
	group := netip.MustParseAddr("239.77.1.9")
	g, err := netconn.Join(c, group)
	fatal.If(t, err)
	defer g.Close()
	to := netip.AddrPortFrom(group, c.LocalAddr().Port())
	for _, s := range []string{"lost", "passed"} {
		if _, err := c.Send([]packetconn.Train{{Addr: to, Buf: []byte(s)}}); err != nil {
			t.Fatal(err)
		}
	}
	in := []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}}
	if _, err := g.Recv(in); err != nil || string(in[0].Buf) != "passed" || n != 1 {
		t.Errorf("received %q, %v, after %d datagrams", in[0].Buf, err, n+1)
	}
}
