package roce

// inFlight is a QP's part of the windows of its peer: the bytes it has in
// flight, and whether it must wait before it sends more.
type inFlight struct {
	out, in int64 // bytes in the two windows for packets in [una, next)
	paceAt  int64 // time at which pacing allows the next packet; 0: now
	blocked bool  // a window has no room for the next packet
	forced  bool  // the window stayed full for a whole timeout: send one packet anyway

	waitsOut bool // waiting for peer.out, guarded by that window's lock
	waitsIn  bool // waiting for peer.in, guarded by that window's lock
}

// A released holds the waiting QP of each window that may send because its
// window has room again, or nil.
type released [2]*QP

// sent counts a packet that was sent.
func (f *inFlight) sent(p *peer, out, in int64) {
	p.out.used.Add(out)
	p.in.used.Add(in)
	f.out += out
	f.in += in
}

// arrived removes bytes that arrived from the windows, and lets the windows grow. size is
// the cost of a full packet.
func (f *inFlight) arrived(p *peer, out, in, size, rtt, now int64) (r released) {
	f.out -= out
	f.in -= in
	if out != 0 {
		p.out.grow(now, rtt, out, max(1, out/size))
		r[0] = p.out.give(out)
	}
	if in != 0 {
		p.in.grow(now, rtt, in, max(1, in/size))
		r[1] = p.in.give(in)
	}
	return r
}

// reported removes the bytes of packets from the send window that a SelectiveAck reported.
func (f *inFlight) reported(p *peer, out, packets, rtt, now int64) *QP {
	f.out -= out
	p.out.grow(now, rtt, out, packets)
	return p.out.give(out)
}

// lost removes the bytes of packets from the send window that were lost one by one.
func (f *inFlight) lost(p *peer, out, packets, rtt, now int64) *QP {
	p.out.cut(now, rtt, packets)
	f.out -= out
	return p.out.give(out)
}

// lostAll reports to the windows that everything in flight was lost.
func (f *inFlight) lostAll(p *peer, size, rtt, now int64) {
	if f.in > 0 {
		p.in.cut(now, rtt, max(1, f.in/size))
	}
	if f.out > 0 {
		p.out.cut(now, rtt, max(1, f.out/size))
	}
}

// release removes everything from the windows.
func (f *inFlight) release(p *peer) released { return f.takenBack(p, f.out, f.in) }

// takenBack removes bytes from the windows that are to be sent again.
func (f *inFlight) takenBack(p *peer, out, in int64) (r released) {
	if out = min(out, f.out); out != 0 {
		f.out -= out
		r[0] = p.out.give(out)
	}
	if in = min(in, f.in); in != 0 {
		f.in -= in
		r[1] = p.in.give(in)
	}
	return r
}

// leave removes the QP from those that wait for room.
func (f *inFlight) leave(p *peer, q *QP) released {
	return released{p.out.drop(q, &f.waitsOut), p.in.drop(q, &f.waitsIn)}
}

// stop ends all waiting, because the QP leaves its state.
func (f *inFlight) stop() { f.paceAt, f.blocked = 0, false }

// begin resets blocked and paceAt at the start of a turn.
func (f *inFlight) begin() { f.blocked, f.paceAt = false, 0 }

// force lets the next packet be sent without room in the window, if on is true.
func (f *inFlight) force(on bool) { f.forced = on }

// forcedSent records that the forced packet was sent.
func (f *inFlight) forcedSent() { f.forced = false }

// room reports whether the windows have room for a packet of q. If not, q waits
// for room. limit is the limit of the send window.
func (f *inFlight) room(q *QP, out, in, limit int64) bool {
	for w := &q.peer.out; out != 0; limit = w.limit.Load() {
		if used := w.used.Load(); used <= 0 || used+out <= limit {
			break
		}
		if w.wait(q, out, &f.waitsOut) {
			f.blocked = true
			return false
		}
	}
	for w := &q.peer.in; in != 0 && !w.room(in); {
		if w.wait(q, in, &f.waitsIn) {
			f.blocked = true
			return false
		}
	}
	return true
}

// paced reports whether pacing allows sending n bytes now. If not, it sets the time of
// the next attempt.
func (f *inFlight) paced(p *peer, n, rtt, now int64) bool {
	if p.out.trip.Load() < longRTT {
		return true
	}
	if wait := p.out.pace(now, rtt, n); wait > 0 {
		f.paceUntil(now + wait)
		return false
	}
	return true
}

// paceUntil puts off the next packet to a time.
func (f *inFlight) paceUntil(at int64) { f.paceAt = at }

// expire ends the wait for pacing, if its time has come.
func (f *inFlight) expire(now int64) {
	if f.paceAt <= now {
		f.paceAt = 0
	}
}
