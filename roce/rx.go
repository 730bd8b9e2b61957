package roce

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/internal/base/wire"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// recvTrains is how many trains one call takes from the socket at most.
const recvTrains = 4

// loneBytes is the size up to which a batch is taken for a single message that
// somebody waits for, rather than for a part of a stream.
const loneBytes = 4096

// An inbox is where packets are received into, by one goroutine at a time: who has
// the turn gives all that it takes to the QPs before another may take more.
type inbox struct {
	turn   sync.Mutex
	trains []packetconn.Datagrams // guarded by turn
	heard  bool                   // likewise: a message used up a receive request

	pollers atomic.Int32  // those who call Poll
	left    chan struct{} // the last of them has gone
}

func (i *inbox) init() {
	i.left = make(chan struct{}, 1)
	i.trains = make([]packetconn.Datagrams, recvTrains)
	for k := range i.trains {
		i.trains[k].Buf = make([]byte, packetconn.RecvSize)
	}
}

// receive is the receive goroutine.
func (p *Port) receive() {
	for more := false; ; {
		if p.in.pollers.Load() > 0 {
			select {
			case <-p.done:
				return
			case <-p.in.left:
			}
			more = true // they may have left something
			continue
		}
		// There is no waiting while there is something to send.
		_, lone, err := p.fetch(!more)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Whatever ails the socket, asking again at once will not help it.
			select {
			case <-p.done:
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		if lone {
			// Whoever waits for this message and answers it at once does so
			// now: the acknowledgement then leaves with the answer, in one
			// train.
			runtime.Gosched()
		}
		more = p.pump(1)
	}
}

// fetch takes the packets that are there, or waits for some, and gives them to their
// QPs. It returns their bytes, and whether they are a message that somebody is
// likely to wait for and answer.
func (p *Port) fetch(wait bool) (n int, lone bool, err error) {
	p.in.turn.Lock()
	defer p.in.turn.Unlock()
	return p.fetchInTurn(wait)
}

func (p *Port) fetchInTurn(wait bool) (n int, lone bool, err error) {
	recv := p.conn.Poll
	if wait {
		recv = p.conn.Recv
	}
	count, err := recv(p.in.trains)
	if count == 0 {
		return 0, false, err
	}
	now := p.now()
	for i := range p.in.trains[:count] {
		t := &p.in.trains[i]
		p.take(t, now)
		n += len(t.Buf)
	}
	lone = p.in.heard && n <= loneBytes
	p.in.heard = false
	return n, lone, nil
}

// Poll takes the packets that have come and sends what there is to send, on the
// caller's goroutine, unless another is at it. It does not wait. It reports whether
// there was anything to do.
//
// A program that has nothing better to do than to ask again saves going to sleep,
// waking up and the way from one goroutine to the other, which take longer than a
// message does. It calls [Port.Polling] first.
func (p *Port) Poll() bool {
	taken := false
	if p.in.turn.TryLock() {
		n, lone, _ := p.fetchInTurn(false)
		p.in.turn.Unlock()
		if lone {
			return true // acknowledged with the answer, or by the next call
		}
		taken = n > 0
	}
	if p.ready.empty() {
		return taken
	}
	p.pump(1)
	return true
}

// Polling announces a goroutine that calls [Port.Poll] again and again, until it calls
// done. The receive goroutine stays away meanwhile, once it has taken the packet that
// it may be waiting for: nothing arrives, and nothing is acknowledged, except in calls
// of Poll and [QP.Kick]. Where the network cannot be polled ([packetconn.Caps]) it is as
// before.
func (p *Port) Polling() (done func()) {
	if !p.conn.Caps().Poll {
		return func() {}
	}
	p.in.pollers.Add(1)
	return sync.OnceFunc(func() {
		if p.in.pollers.Add(-1) > 0 {
			return
		}
		select {
		case p.in.left <- struct{}{}:
		default:
		}
		p.wake() // for what was left to send, in case the receive goroutine did not stay away
	})
}

// take gives the packets of a train to their QPs. The lock of a QP is held as
// long as the packets are its.
func (p *Port) take(t *packetconn.Datagrams, now int64) {
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
			if q = p.acquire(num, t); q == nil {
				continue
			}
		}
		q.packet(b, t.TOS, now)
	}
	if q != nil {
		q.release(now)
	}
	p.n.RecvTrains.Add(1)
	p.n.RecvPackets.Add(uint64(count))
	p.n.RecvBytes.Add(uint64(len(t.Buf)))
}

// acquire locks the QP that packets of train t are for; nil if they are for
// none.
func (p *Port) acquire(num uint32, t *packetconn.Datagrams) *QP {
	q := p.qps.get(num)
	if q == nil {
		p.n.UnknownQP.Add(1)
		return nil
	}
	q.mu.Lock()
	switch {
	case q.state < StateRTR || q.state > StateRTS:
		p.n.WrongState.Add(1)
	case q.service == wire.ServiceUD:
		if t.Addr != q.from {
			q.from, q.fromIn = t.Addr, wire.NewFlow(t.Addr, p.local)
		}
		return q
	case t.Addr.Addr() != q.recv.Peer.Addr():
		p.n.UnknownSource.Add(1)
	default:
		// The source port is the sender's choice; some use it to spread flows.
		if t.Addr != q.from {
			q.from, q.fromIn = t.Addr, wire.NewFlow(t.Addr, p.local)
		}
		return q
	}
	q.mu.Unlock()
	return nil
}

// release unlocks a QP after its packets, and sees to it that what they asked
// for is sent.
func (q *QP) release(now int64) {
	q.takeEarly(now)
	q.findGaps(now)
	q.settle(now)
	busy := q.resp.answers() || q.req.again
	q.req.again = false
	q.mu.Unlock()
	if busy {
		q.port.ready.push(q)
	}
}

// ecnMarked is the value of the ECN bits that a congested switch sets.
const ecnMarked = 3

// packet takes one packet. It is called with the lock held.
func (q *QP) packet(b []byte, tos byte, now int64) {
	n := &q.port.n
	if q.state < StateRTR || q.state > StateRTS {
		n.WrongState.Add(1) // an earlier packet of the train was fatal
		return
	}
	if len(b) > wire.MaxPacket {
		n.Malformed.Add(1)
		return
	}
	var k packet
	parsed := k.parse(b)
	id, ok := q.check(b, &k)
	if ok && q.peer != nil {
		ok = q.ids.plausible(id)
	}
	if !ok {
		n.BadICRC.Add(1)
		return
	}
	if q.peer != nil {
		q.heard = now
	}
	if !parsed && q.recv.Selective && q.selective(b, now) {
		return
	}
	if !parsed {
		if wire.Opcode(b[0]) == wire.CongestionNotification && len(b) == wire.CNPLen && q.peer != nil {
			n.CNPReceived.Add(1)
			q.peer.out.notified(now, q.req.roundTrip())
			return
		}
		n.Malformed.Add(1)
		return
	}
	if !k.inPartition() {
		n.BadPKey.Add(1)
		return
	}
	if k.service != q.service {
		n.WrongService.Add(1)
		return
	}
	if k.service == wire.ServiceUD {
		q.datagram(&k, &wire.GRH{Src: q.from.Addr(), Dst: q.port.local.Addr(), TOS: tos, ID: id, Length: len(b)})
		return
	}
	if tos&3 == ecnMarked && now-q.resp.cnpTime >= cnpInterval {
		q.resp.cnp, q.resp.cnpTime = true, now
	}
	switch {
	case k.service == wire.ServiceUC:
		q.unreliable(&k)
	case k.layout&wire.IsRequest != 0:
		q.request(&k, b, now)
	default:
		q.response(&k, b, now)
	}
}

// selective takes a packet of selective repeat, and reports whether it is one.
func (q *QP) selective(b []byte, now int64) bool {
	body, ok := wire.ParseSelective(b)
	if !ok {
		return false
	}
	bth, _, _ := wire.ParseBTH(b)
	if bth.PKey&0x7fff != wire.DefaultPKey&0x7fff {
		q.port.n.BadPKey.Add(1)
		return true
	}
	if bth.Opcode == wire.SelectiveAck {
		q.selectiveAck(bth.PSN, body, now)
	} else {
		q.repeatSpans(bth.PSN, bth.Mark, body)
	}
	return true
}

// identifications watches which IPv4 identifications the peer's packets have.
// The invariant CRC leaves it to the receiver to find that out, and so lets one
// damaged packet in 2^16 pass. But peers like this one count from 0 within a
// train ([packetconn.Conn].ID): from one that has been seen to begin again and again,
// another identification is damage. A system that counts all its packets, as
// Linux does, comes by 0 once in 2^16 packets only.
type identifications struct {
	zeros uint8 // packets with 0 since one with a large one, up to sureZeros
	large uint8 // packets in a row with a large one, once sure
}

const (
	maxSmall  = 128 // segments in one GSO call at most
	sureZeros = 16
	notSmall  = 8
)

// plausible reports whether to believe an identification.
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
	// Another route, perhaps another system at the same address: so be it, if
	// it goes on like that.
	if d.large++; d.large >= notSmall {
		*d = identifications{}
		return true
	}
	return false
}
