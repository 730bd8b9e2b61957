package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// recvTrains is the largest number of trains that one system call receives.
const recvTrains = 4

// loneBytes is the size up to which a batch counts as a single message for a
// waiting receiver, rather than as part of a stream.
const loneBytes = 4096

// gatheredBatches is the number of batches that the receive goroutine handles after a first one
// before it sends, if the first one is a part of a stream and the others have arrived already. One
// acknowledgement then answers them all. An acknowledgement takes both sides about as much
// processor time as 8 KiB of data.
const gatheredBatches = 3

// polling is the state of the goroutines that poll a port.
type polling struct {
	pollers atomic.Int32           // number of goroutines that poll
	polled  atomic.Int64           // time of the last call of Poll
	wake    atomic.Pointer[func()] // wakes the goroutine that polls; nil: it does not sleep
}

// receive is the receive goroutine of a link.
func (l *link) receive() {
	p := l.port
	for more := false; ; {
		if l.polled && p.polling.pollers.Load() > 0 {
			select {
			case <-p.done:
				return
			case <-l.removed:
				return
			case <-l.in.left:
			}
			more = true // packets may be ready to send
			continue
		}
		// While packets are ready to send, fetch does not wait.
		n, lone, err := l.fetch(!more)
		for i := 0; i < gatheredBatches && n > loneBytes && err == nil; i++ {
			n, lone, err = l.fetch(false)
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Socket errors tend to persist, so do not spin.
			select {
			case <-p.done:
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		if lone {
			// Let the goroutine that waits for this message run now. If it
			// replies at once, the acknowledgement joins the reply's train.
			runtime.Gosched()
		}
		more = p.pump(1)
	}
}

// fetch receives packets and delivers them to their QPs. It waits for packets if wait is
// set. It returns the number of bytes received, and whether they are a single message for
// which a goroutine is probably waiting.
func (l *link) fetch(wait bool) (n int, lone bool, err error) {
	l.in.turn.Lock()
	defer l.in.turn.Unlock()
	recv := l.conn.Poll
	if wait {
		recv = l.conn.Recv
	}
	count, err := recv(l.in.trains)
	n, lone = l.takeAll(count)
	return n, lone, err
}

// takeAll delivers the first count trains of the inbox. It returns what fetch does.
func (l *link) takeAll(count int) (n int, lone bool) {
	if count == 0 {
		return 0, false
	}
	now := l.port.now()
	for i := range l.in.trains[:count] {
		t := &l.in.trains[i]
		l.take(t, now)
		n += len(t.Buf)
		loan.End(t.Buf)
	}
	lone = l.in.heard && n <= loneBytes
	l.in.heard = false
	return n, lone
}

// Poll receives the packets that have arrived, runs the timers and sends the
// packets that are ready, unless another goroutine is doing so. It does not
// block. It reports whether it did any work.
//
// A program that polls avoids sleeping, waking up and switching goroutines, which take
// longer than a small message. It must call [Port.Polling] first.
func (p *Port) Poll() bool { return p.poll(false) }

// PollMemory is Poll without the sockets, which cost a system call each: it receives the packets that passed in memory
// ([netconn.Neighbor]).
func (p *Port) PollMemory() bool { return p.poll(true) }

func (p *Port) poll(memory bool) bool {
	now := p.now()
	p.polling.polled.Store(now)
	taken := false
	for _, l := range p.gids() {
		if !l.polled || !l.addr.IsValid() || memory && l.near == nil || !l.in.turn.TryLock() {
			continue
		}
		count := 0
		if memory {
			count = l.near.PollMemory(l.in.trains)
		} else {
			count, _ = l.conn.Poll(l.in.trains)
		}
		n, lone := l.takeAll(count)
		l.in.turn.Unlock()
		if lone {
			return true // the reply or the next call sends the acknowledgement
		}
		taken = taken || n > 0
	}
	p.expire(now)
	if p.ready.empty() {
		return taken
	}
	p.pump(1)
	return true
}

// Polling announces that the caller will call [Port.Poll] in a loop until it calls done.
// The receive goroutine pauses in the meantime. If it is already blocked in Recv, it
// handles one more batch first. Only calls of Poll and [QP.Kick] then receive and
// acknowledge packets, run the timers and send. If the program makes no calls of Poll for
// a while, the transmit goroutine runs the timers and sends.
//
// If wake is not nil, the goroutine that polls may sleep, and the transmit goroutine leaves
// all work to it. The port calls wake when a timer is due or a QP has something to send, but
// not for packets that arrive. wake must not block.
//
// Entries of the GID table whose network cannot be polled ([packetconn.Caps]) keep their receive goroutines.
// If the first one is so, Polling has no effect.
func (p *Port) Polling(wake func()) (done func()) {
	if !p.gids()[0].polled {
		return func() {}
	}
	s := &p.polling
	s.pollers.Add(1)
	if wake != nil {
		s.wake.Store(&wake)
	}
	return sync.OnceFunc(func() {
		if wake != nil {
			s.wake.CompareAndSwap(&wake, nil)
		}
		if s.pollers.Add(-1) > 0 {
			return
		}
		for _, l := range p.gids() {
			signal(l.in.left)
		}
		p.wake() // send ready packets even if the receive goroutine did not pause
	})
}

// take delivers the packets of a train that arrived on the socket.
func (l *link) take(t *packetconn.Train, now int64) { l.deliver(t, false, now) }

// deliver delivers the packets of a train to their QPs. It locks a QP once for consecutive
// packets. inside says that the train comes from this port and not from a socket.
func (l *link) deliver(t *packetconn.Train, inside bool, now int64) {
	p := l.port
	if p.down.Load() {
		return
	}
	var q *QP
	count := t.Count()
	if t.TOS&3 == ecnMarked {
		p.n.ECNMarked.Add(uint64(count))
	}
	for i := range count {
		b := t.At(i)
		if len(b) < wire.MinPacket {
			p.n.Malformed.Add(1)
			continue
		}
		num := binary.BigEndian.Uint32(b[4:]) & psnMask
		if q == nil || q.num != num {
			if q != nil {
				q.release(now)
			}
			if q = l.acquire(num, t, inside, b); q == nil {
				continue
			}
		}
		q.packet(b, t, now)
	}
	if q != nil {
		q.release(now)
	}
	p.n.RecvTrains.Add(1)
	p.n.RecvPackets.Add(uint64(count))
	p.n.RecvBytes.Add(uint64(len(t.Buf)))
}

// acquire locks the QP with a number, for packets of train t from packet b on.
// It returns nil if no QP accepts the packet, which is counted as dropped, or
// if the QP has a lane, to which the packet is passed.
func (l *link) acquire(num uint32, t *packetconn.Train, inside bool, b []byte) *QP {
	q, ok := l.port.qps.Get(num)
	if !ok {
		l.port.n.UnknownQP.Add(1)
		return nil
	}
	if n := q.lane.Load(); n != nil {
		n.packet(l, t, inside, b)
		return nil
	}
	if !q.enter(l, t, inside) {
		return nil
	}
	return q
}

// release unlocks a QP after consecutive packets, and queues the QP if it has something
// to send.
func (q *QP) release(now int64) {
	q.dynamicEnd.hear(now)
	q.endBatch()
	q.settle(now)
	responds := q.resp.answers()
	busy := q.req.builds() || q.dct.answers()
	q.mu.Unlock()
	if responds {
		q.port.ready.owe(q)
	}
	if busy {
		q.port.ready.push(q)
	}
}

// endBatch ends a batch of packets that were passed to the Handler.
func (q *QP) endBatch() {
	nak := q.h.EndBatch()
	if nak == NAKNone || q.state < rdma.StateRTR || q.state > rdma.StateRTS {
		return
	}
	err := fmt.Errorf("the batch of packets from PSN %#x on could not be finished: %w", q.resp.batch, nak.Err())
	if !q.acknowledged() {
		q.failRest(Failure{Status: rdma.StatusLocProtErr, Err: err})
		return
	}
	q.refuseAt(q.resp.batch, nak, err)
}

// ecnMarked is the value of the ECN field that a congested switch sets (CE).
const ecnMarked = 3

// packet handles packet b of a train. It is called with the lock held.
func (q *QP) packet(b []byte, t *packetconn.Train, now int64) {
	var k packet
	id, refused := q.inspect(b, &k)
	switch {
	case refused != nil:
		refused.Add(1)
	case k.layout == 0:
		q.special(b, now)
	case k.service == wire.ServiceUD:
		grh := wire.GRH{Src: t.Addr.Addr(), Dst: q.link.addr.Addr(), TOS: t.TOS, ID: id, Length: len(b), HopLimit: t.Route.HopLimit, V1: q.link.v1}
		if q.datagram(&k, &grh, &origin{q.link, t.Addr, t.Route}) {
			q.sawMessage()
		}
	default:
		if t.TOS&3 == ecnMarked {
			q.resp.cnp.marked(now)
		}
		switch {
		case k.service == wire.ServiceUC:
			q.unreliable(&k, now)
		case k.layout&wire.IsRequest != 0:
			q.request(&k, now)
		default:
			q.response(&k, now)
		}
	}
}

// inspect parses and checks packet b, before anything in it is acted on. It
// returns the counter for the reason to drop b, or nil if b is accepted, and
// the identification of b. If b is not a request or response of the standard by
// its opcode or length, k has no layout.
func (q *QP) inspect(b []byte, k *packet) (id uint16, refused *atomic.Uint64) {
	n := &q.port.n
	switch {
	case q.state < rdma.StateRTR || q.state > rdma.StateRTS:
		refused = &n.WrongState // an earlier packet of the train ended the connection
	case len(b) > q.largest():
		refused = &n.Malformed
	default:
		parsed := k.parseUpTo(b, q.largest())
		var ok bool
		id, ok = q.check(b, k)
		switch {
		case !ok || q.peer != nil && q.via == overNetwork && !q.ids.plausible(id):
			refused = &n.BadICRC
			q.noteBadCRC(b)
		case !parsed:
			k.layout = 0
		case !k.inPartition():
			refused = &n.BadPKey
		case k.service != q.service || q.dct != nil || q.dci != nil && k.layout&wire.IsRequest != 0:
			refused = &n.WrongService
		}
	}
	return id, refused
}

// special handles a packet that is not a request or response of the standard.
func (q *QP) special(b []byte, now int64) {
	n := &q.port.n
	switch {
	case q.dynamic() && q.control(b, now):
	case wire.Opcode(b[0]) == wire.CongestionNotification && len(b) == wire.CNPLen && q.peer != nil:
		n.CNPReceived.Add(1)
		trip, _ := q.req.loss.Trip()
		q.peer.out.notified(now, trip)
	default:
		n.Malformed.Add(1)
	}
}

// identifications checks the IPv4 identifications of the peer's packets. The
// identification is part of the CRC, but a UDP socket does not show it, so the receiver
// computes the one for which the CRC is right. One damaged packet in 2^16 therefore
// passes the CRC. This package's senders count the identification from 0 within each
// train ([packetconn.Conn].ID). Once a peer is seen to do so, a large identification
// indicates damage. Other systems, for example Linux, count all packets and use 0 only
// once in 2^16.
type identifications struct {
	zeros uint8 // packets with 0 since the last large one, up to sureZeros
	large uint8 // consecutive packets with a large one, once zeros is sureZeros
}

const (
	maxSmall  = 128 // largest number of segments in a GSO call
	sureZeros = 16
	notSmall  = 8
)

// plausible reports whether id is accepted.
func (d *identifications) plausible(id uint16) bool {
	switch {
	case id < maxSmall:
		if id == 0 {
			d.zeros = min(d.zeros+1, sureZeros)
		}
		d.large = 0
		return true
	case d.zeros < sureZeros:
		d.zeros = 0
		return true
	}
	// Another system may have taken over the address: accept it after a few packets.
	if d.large++; d.large >= notSmall {
		*d = identifications{}
		return true
	}
	return false
}
