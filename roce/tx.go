package roce

import (
	"errors"
	"net"
	"time"
)

// Rounds of sending before Kick hands over to the transmit goroutine, and before the
// transmit goroutine checks the timers again.
const (
	kickRounds     = 2
	transmitRounds = 16
)

// transmit is the transmit goroutine. It runs the timers and sends for QPs for which no
// other goroutine sends.
func (p *Port) transmit() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if at, ok := p.timers.next(); ok {
			wait = time.Duration(max(0, at-p.now()))
		}
		timer.Reset(wait)
		select {
		case <-p.done:
			return
		case <-p.wakeup:
		case <-timer.C:
		}
		p.expire()
		if p.pump(transmitRounds) {
			p.wake()
		}
	}
}

// expire handles the QPs whose timers have fired.
func (p *Port) expire() {
	now := p.now()
	for q := p.timers.due(now); q != nil; q = p.timers.due(now) {
		q.expire(now)
		p.ready.push(q)
	}
}

// wake wakes the transmit goroutine.
func (p *Port) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// pump sends for the ready QPs, for at most rounds rounds, and reports whether QPs are
// still ready afterwards. If another goroutine holds sending, pump returns false: that
// goroutine checks the queue again after it releases the lock.
func (p *Port) pump(rounds int) (more bool) {
	for !p.ready.empty() {
		if rounds == 0 {
			return true
		}
		if !p.sending.TryLock() {
			return false
		}
		for ; rounds > 0 && !p.ready.empty(); rounds-- {
			p.round()
		}
		p.sending.Unlock()
	}
	return false
}

// round gives ready QPs their turns until the trains are full, and sends the trains. It
// is called with sending held. It holds no QP's lock during the system call.
func (p *Port) round() {
	b := p.builder
	b.reset()
	now := p.now()
	for !b.full {
		q := p.ready.pop()
		if q == nil {
			break
		}
		q.mu.Lock()
		more := q.build(b, now)
		q.mu.Unlock()
		if more {
			p.ready.push(q)
		}
	}
	if b.n == 0 {
		return
	}
	trains := b.trains[:b.n]
	p.n.SentTrains.Add(uint64(b.n))
	p.n.SentPackets.Add(uint64(b.total))
	for i := range trains {
		p.n.SentBytes.Add(uint64(len(trains[i].Buf)))
	}
	for len(trains) > 0 {
		n, err := p.conn.Send(trains)
		if err == nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// The protocol recovers from this as from any lost train.
		p.n.SendErrors.Add(1)
		trains = trains[min(n+1, len(trains)):]
	}
}
