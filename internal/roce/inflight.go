package roce

// inFlight is a QP's part of the windows of its peer: the bytes it has in
// flight, and whether it must wait before it sends more.
type inFlight struct {
	out, in int64 // bytes in the two windows for packets in [una, next)
	paceAt  int64 // time at which pacing allows the next packet; 0: now
	blocked bool  // a window has no room for the next packet
	forced  bool  // the window stayed full for a whole timeout: send one packet anyway
}

// add counts more bytes in flight.
func (f *inFlight) add(out, in int64) {
	f.out += out
	f.in += in
}

// begin resets blocked and paceAt at the start of a turn, and when the QP leaves its state.
func (f *inFlight) begin() { f.blocked, f.paceAt = false, 0 }

// expire ends the wait for pacing, if its time has come.
func (f *inFlight) expire(now int64) {
	if f.paceAt <= now {
		f.paceAt = 0
	}
}
