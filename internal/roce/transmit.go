package roce

import (
	"errors"
	"net"
	"time"

	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/packetconn"
)

// Rounds of sending before Kick hands over to the transmit goroutine, and before the
// transmit goroutine checks the timers again. A round inside the port takes no system call, so
// networkRound of them count as one.
const (
	kickRounds     = 2
	transmitRounds = 16
	networkRound   = 8
)

// pollLapse is the time for which the transmit goroutine leaves work to the
// polling goroutine, after that goroutine's last call of Poll or after waking
// it.
const pollLapse = 2 * time.Millisecond

// transmit is the transmit goroutine. It runs the timers and sends for QPs for which no
// other goroutine sends.
//
// While a program polls, the goroutine that polls does both, and transmit only
// checks that the program still polls. If both sent, transmit could lose its
// processor to a program that polls without a pause, while it holds a lock that
// the other goroutine needs.
func (p *Port) transmit() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for check := int64(0); ; {
		at := p.timers.sleep(check)
		if check != 0 {
			at = check
		}
		timer.Reset(time.Duration(max(0, at-p.now())))
		select {
		case <-p.done:
			return
		case <-p.wakeup:
		case <-timer.C:
		}
		now := p.now()
		check = 0
		if p.ready.empty() && p.timers.first.Load() > now {
			if p.polling.pollers.Load() > 0 && p.polling.polled.Load()+int64(pollLapse) > now {
				check = now + int64(pollLapse)
			}
			continue
		}
		if p.polling.pollers.Load() > 0 {
			left := p.polling.polled.Load() + int64(pollLapse) - now
			if wake := p.polling.wake.Load(); wake != nil {
				(*wake)()
				left = int64(pollLapse)
			}
			if left > 0 {
				check = now + left
				continue
			}
		}
		p.expire(now)
		if p.pump(transmitRounds) {
			p.wake()
		}
	}
}

// expire handles the QPs whose timers have fired.
func (p *Port) expire(now int64) {
	for q := p.timers.due(now); q != nil; q = p.timers.due(now) {
		if n := q.lane.Load(); n != nil {
			n.signal(func() { n.due = true })
			continue
		}
		q.expire(now)
		p.ready.push(q)
	}
}

// wake wakes the transmit goroutine.
func (p *Port) wake() { signal(p.wakeup) }

// wakeReady wakes the transmit goroutine if QPs are ready. Whoever held sending outside of pump calls it after the
// unlock, because a Kick in the meantime has only queued its QP.
func (p *Port) wakeReady() {
	if !p.ready.empty() {
		p.wake()
	}
}

// signal puts an element into a channel of one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pump sends for the ready QPs, for at most rounds rounds, and reports whether QPs are
// still ready afterwards. If another goroutine holds sending, pump returns false: that
// goroutine checks the queue again after it unlocks it, in pump or in wakeReady.
func (p *Port) pump(rounds int) (more bool) {
	left := rounds * networkRound
	for !p.ready.empty() {
		if left <= 0 {
			return true
		}
		if !p.sending.TryLock() {
			return false
		}
		for left > 0 && !p.ready.empty() {
			if p.round() {
				left -= networkRound
			} else {
				left--
			}
		}
		p.sending.Unlock()
	}
	return false
}

// round gives ready QPs their turns until the trains are full, and sends the trains. It
// reports whether the network was used. It is called with sending held.
func (p *Port) round() (network bool) {
	b := p.builder
	b.reset()
	now := p.now()
	for !b.full {
		q, responds := p.ready.pop()
		if q == nil {
			break
		}
		if q.lane.Load().wake() {
			continue // it was queued before it got its lane
		}
		q.mu.Lock()
		var more bool
		if responds {
			b.aim(q.recv.DestQPN)
			more = q.buildResponses(b)
		} else {
			more = q.build(b, now)
		}
		q.mu.Unlock()
		if more {
			p.ready.push(q)
		}
	}
	return p.sendBuilt(b)
}

// sendBuilt sends the trains of a builder, and reports whether the network was used. It is called
// with the lock of the builder held, and with no QP's lock held.
func (p *Port) sendBuilt(b *builder) (network bool) {
	if p.down.Load() {
		return false // lost, as on a cable that is not there
	}
	trains := b.trains[:b.n]
	p.n.SentTrains.Add(uint64(b.n))
	p.n.SentPackets.Add(uint64(b.total))
	for i := range trains {
		p.n.SentBytes.Add(uint64(len(trains[i].Buf)))
		if d := &trains[i]; d.Addr.Addr().IsMulticast() {
			p.n.MulticastSent.Add(uint64((len(d.Buf) + max(d.Seg, 1) - 1) / max(d.Seg, 1)))
		}
	}
	for at := 0; at < len(trains); {
		w, end := &b.paths[at], at+1
		if w.near != nil {
			w.deliverInside(trains[at])
			at = end
			continue
		}
		for end < len(trains) && b.paths[end].from == w.from && b.paths[end].near == nil {
			end++
		}
		p.send(w.from, trains[at:end])
		at, network = end, true
	}
	for i := range trains {
		loan.End(trains[i].Buf)
	}
	return network
}

// send sends trains from a link.
func (p *Port) send(l *link, trains []packetconn.Train) {
	p.wire.Lock()
	defer p.wire.Unlock()
	for len(trains) > 0 {
		n, err := l.conn.Send(trains)
		if err == nil || errors.Is(err, net.ErrClosed) {
			return
		}
		// The protocol recovers from this as from any lost train.
		p.n.SendErrors.Add(1)
		if n < len(trains) {
			l.refuse(trains[n].Addr.Addr(), err)
		}
		trains = trains[min(n+1, len(trains)):]
	}
}
