//go:build linux

package share

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/packetconn"
)

// twoEnds returns both ends of a ring, each with a mapping of its own.
func twoEnds(t *testing.T) (producer, consumer *ring) {
	t.Helper()
	fd, err := newMemory()
	fatal.If(t, err)
	defer unix.Close(fd)
	for _, r := range []**ring{&producer, &consumer} {
		if *r, err = openRing(fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*r).close)
	}
	return producer, consumer
}

// TestRing moves trains of all sizes, more than the ring holds, and compares each.
func TestRing(t *testing.T) {
	p, c := twoEnds(t)
	r := rand.New(rand.NewPCG(1, 2))
	var sent []packetconn.Train
	got := packetconn.Train{Buf: make([]byte, packetconn.RecvSize)}
	full := 0
	for i := 0; i < 3000 || len(sent) > 0; i++ {
		if i < 3000 && r.IntN(8) > 0 {
			b := make([]byte, 1+r.IntN(packetconn.RecvSize)>>r.IntN(14))
			for k := 0; k < len(b); k += 1 + k/2 {
				b[k] = byte(r.Uint32())
			}
			d := packetconn.Train{Buf: b, Seg: 1 + r.IntN(len(b)), TOS: byte(i)}
			err := p.push(&d)
			if err == nil {
				sent = append(sent, d)
				continue
			}
			if err != errRingFull {
				t.Fatal(err)
			}
			full++
		}
		most := 100 // the consumer keeps up
		if i >= 1500 {
			most = 4
		}
		for range r.IntN(most) {
			ok, err := c.pop(&got)
			if err != nil || ok != (len(sent) > 0) {
				t.Fatalf("%v, %v with %d trains in the ring", ok, err, len(sent))
			}
			if !ok {
				break
			}
			if want := sent[0]; !bytes.Equal(want.Buf, got.Buf) || want.Seg != got.Seg || want.TOS != got.TOS {
				t.Fatalf("train of %d bytes differs: segments of %d and %d, type of service %#x and %#x", len(got.Buf), want.Seg, got.Seg, want.TOS, got.TOS)
			}
			sent = sent[1:]
		}
	}
	if full == 0 {
		t.Error("the ring was never full")
	}
	// While the consumer keeps up, the ring uses its beginning only.
	if ok, err := c.pop(&got); ok || err != nil {
		t.Fatal(ok, err)
	}
	behind := ringHot / ringBehind / packetconn.RecvSize
	for i := range 1000 {
		fatal.If(t, p.push(&packetconn.Train{Buf: make([]byte, 9000)}))
		if i < behind {
			continue
		}
		if ok, err := c.pop(&got); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if at := p.at % ringData; at > ringHot+packetconn.RecvSize {
		t.Errorf("the ring is used up to byte %d", at)
	}
}

// TestRingWakes announces a sleep and pushes: one wake-up is due.
func TestRingWakes(t *testing.T) {
	p, c := twoEnds(t)
	d := packetconn.Train{Buf: make([]byte, 100)}
	push := func() bool {
		fatal.If(t, p.push(&d))
		return p.wakes()
	}
	if push() {
		t.Error("a wake-up without sleep")
	}
	if !c.sleep() {
		t.Error("sleep does not see the train")
	}
	if !push() || push() {
		t.Error("not one wake-up for two trains")
	}
	c.awake()
	if push() {
		t.Error("a wake-up after awake")
	}
}

// scribble writes anything where the other end reads: positions near and far, and records.
func scribble(r *ring, g *rand.Rand) {
	word := g.Uint64() >> g.IntN(64)
	switch g.IntN(5) {
	case 0:
		r.produced.Store(word)
	case 1:
		r.consumed.Store(word)
	case 2:
		r.produced.Add(uint64(g.IntN(40)) * line)
	case 3:
		r.word(uint64(g.IntN(64) * line)).Store(word)
	case 4:
		r.word(uint64(g.IntN(ringData/line) * line)).Store(recordWord(g.IntN(70000), g.IntN(70000), 0, uint64(g.IntN(4))))
	}
}

// TestRingHostile lets each end of a ring write anything at any time.
func TestRingHostile(t *testing.T) {
	for seed := range uint64(20) {
		p, c := twoEnds(t)
		g := rand.New(rand.NewPCG(seed, 3))
		got := packetconn.Train{Buf: make([]byte, packetconn.RecvSize)}
		for range 500 {
			scribble(p, g)
			if err := p.push(&packetconn.Train{Buf: make([]byte, 1+g.IntN(5000))}); err != nil && err != errRingFull && err != errRingBroken {
				t.Fatal(err)
			}
			for range 10 {
				ok, err := c.pop(&got)
				if err != nil && err != errRingBroken || ok && (len(got.Buf) == 0 || got.Seg <= 0 || got.Seg > len(got.Buf)) {
					t.Fatalf("train of %d bytes with segments of %d, %v", len(got.Buf), got.Seg, err)
				}
			}
			if g.IntN(4) == 0 { // as in a new ring
				p.at, c.at = p.produced.Load()&^(line-1), p.produced.Load()&^(line-1)
				p.produced.Store(p.at)
				p.consumed.Store(p.at)
			}
		}
	}
}

// neighborAt returns a Conn with rings at an address of this test's process.
func neighborAt(t *testing.T, last byte) *Conn {
	t.Helper()
	c, err := Listen(neighborAddr(last), nil, false)
	if err == nil {
		err = c.Meet(nil, false)
	}
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func neighborAddr(last byte) netip.AddrPort {
	return netip.AddrPortFrom(udptest.Addr(100+last), 4791)
}

// TestPollMemory sends a train through a ring and one through the socket. PollMemory receives the first one alone.
func TestPollMemory(t *testing.T) {
	a, b := neighborAt(t, 12), neighborAt(t, 13)
	train := func(via byte) []packetconn.Train {
		buf := make([]byte, 64)
		buf[7], buf[20] = 5, via
		return []packetconn.Train{{Addr: neighborAddr(13), Buf: buf}}
	}
	if _, err := a.Conn.Send(train('s')); err != nil {
		t.Fatal(err)
	}
	if !a.Approach(neighborAddr(13), 5) {
		t.Fatal("no ring")
	}
	if _, err := a.Send(train('r')); err != nil {
		t.Fatal(err)
	}
	got := []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}, {Buf: make([]byte, packetconn.RecvSize)}}
	if n := b.PollMemory(got); n != 1 || got[0].Buf[20] != 'r' {
		t.Fatalf("%d trains came through memory, the first by %q", n, got[0].Buf[20])
	}
	if n := b.PollMemory(got); n != 0 {
		t.Fatalf("%d trains came through memory, and none was left", n)
	}
	if n, err := b.Recv(got); n != 1 || got[0].Buf[20] != 's' {
		t.Fatalf("%d trains came through the socket, the first by %q, %v", n, got[0].Buf[20], err)
	}
}

// lockedConn is a socket whose Send needs the lock of the rings, as a poll during it may. Trains
// with a refused byte are errors.
type lockedConn struct {
	netconn.Conn
	n    *neighbors
	sent []byte
}

const refusedByte = 0xff

func (c *lockedConn) Send(trains []packetconn.Train) (int, error) {
	c.n.tx.Lock()
	defer c.n.tx.Unlock()
	for i := range trains {
		b := trains[i].Buf[20]
		if b == refusedByte {
			return i, unix.EPERM
		}
		c.sent = append(c.sent, b)
	}
	return len(trains), nil
}

// TestSendMixes sends trains through a ring and through the socket in turn. No lock is held while
// the socket sends, the order of each is that of the trains, and an error names its train.
func TestSendMixes(t *testing.T) {
	a, b := neighborAt(t, 4), neighborAt(t, 5)
	if !a.Approach(neighborAddr(5), 5) {
		t.Fatal("no ring")
	}
	socket := &lockedConn{Conn: a.Conn, n: a.m.near}
	a.Conn = socket
	defer func() { a.Conn = socket.Conn }()
	var trains []packetconn.Train
	for i, last := range []byte{5, 5, 6, 5, 6, 6, 6, 5, 5} {
		buf := make([]byte, 64)
		buf[7], buf[20] = 5, byte(i)
		if i == 5 {
			buf[20] = refusedByte
		}
		trains = append(trains, packetconn.Train{Addr: neighborAddr(last), Buf: buf})
	}
	if n, err := a.Send(trains); n != 5 || err != unix.EPERM {
		t.Fatalf("%d trains were sent, %v; want 5, EPERM", n, err)
	}
	if n, err := a.Send(trains[6:]); n != 3 || err != nil {
		t.Fatalf("%d trains were sent, %v; want 3", n, err)
	}
	if want := []byte{2, 4, 6}; !bytes.Equal(socket.sent, want) {
		t.Errorf("through the socket: trains %d, want %d", socket.sent, want)
	}
	var got []byte
	for in := (packetconn.Train{Buf: make([]byte, packetconn.RecvSize)}); ; {
		if n, err := b.Poll([]packetconn.Train{in}); n == 0 || err != nil {
			break
		}
		got = append(got, in.Buf[:21][20])
	}
	if want := []byte{0, 1, 3, 7, 8}; !bytes.Equal(got, want) {
		t.Errorf("through the ring: trains %d, want %d", got, want)
	}
}

// TestHostileNeighbor lets a process write anything to its rings while the other one sends and
// receives. The other one drops the rings and goes on by the network.
func TestHostileNeighbor(t *testing.T) {
	at := neighborAddr
	a, b := neighborAt(t, 1), neighborAt(t, 2)
	buf := func() []packetconn.Train { return []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}} }
	packet := packetconn.Train{Addr: at(2), Buf: make([]byte, 64)}
	for seed := range uint64(5) {
		a.Approach(at(2), 5)
		b.Approach(at(1), 5)
		b.m.near.tx.Lock()
		to := b.m.near.out[place{at(1), 0}].ring
		b.m.near.tx.Unlock()
		b.m.near.rx.Lock()
		from := b.m.near.in[0].ring
		b.m.near.rx.Unlock()
		g := rand.New(rand.NewPCG(seed, 4))
		trains := buf()
		for start := time.Now(); ; {
			scribble(to, g)
			scribble(from, g)
			// A packet that finds no ring may make a new one later.
			if to, _ := a.Rings(); to > 0 {
				if _, err := a.Send([]packetconn.Train{packet}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := a.Poll(trains); err != nil {
				t.Fatal(err)
			}
			if to, from := a.Rings(); to == 0 && from == 0 {
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatal("the rings are still used")
			}
		}
		for to, from := b.Rings(); to+from > 0; to, from = b.Rings() {
			b.Sleep() // the Poll after it sees that the rings are gone
			if _, err := b.Poll(trains); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.m.near.close()
	if _, err := a.Send([]packetconn.Train{packet}); err != nil {
		t.Fatal(err)
	}
	trains := buf()
	for {
		n, err := b.Recv(trains)
		fatal.If(t, err)
		if n > 0 && bytes.Equal(trains[0].Buf, packet.Buf) {
			break
		}
	}
	other, err := udp.Listen(at(3), nil)
	fatal.If(t, err)
	defer other.Close()
	if _, err := other.Send([]packetconn.Train{{Addr: at(1), Buf: packet.Buf}}); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := a.Recv(trains)
		fatal.If(t, err)
		if n > 0 && trains[0].Addr == at(3) {
			break
		}
	}
}
