package roce

import "github.com/softmkey/softmkey/internal/net/wire"

// retries decides when a requester gives up. A full timeout without progress uses up a
// retry. Progress renews the retries, and so does evidence of progress:
//
//   - a response of a READ that was requested, even if it is a copy of one that
//     arrived before, or comes after one that was lost: a slow peer answers
//     repeated READs one after the other and in full before it reaches the
//     outstanding packet;
//   - a SelectiveAck that reports packets after all that were reported before;
//   - an RNR NAK for packet una, which RNRRetry limits.
//
// Each kind of evidence is limited in number while una does not advance. Other
// packets of the peer are no evidence: repeated acknowledgements, NAKs for a
// lost packet, its own requests and congestion notifications. A peer that sends
// only these makes the QP fail as a silent one does.
type retries struct {
	count, rnrCount uint8 // SendConfig.RetryCount and RNRRetry
	left            uint8 // remaining full timeouts
	rnrLeft         uint8
	tries           uint8  // retransmissions of una, up to maxTries
	starved         bool   // a full timeout was prolonged because its timer fired late
	sackHigh        uint32 // no SelectiveAck reported a packet after this PSN
	owed            int32  // READ responses that were requested and have not arrived
	since           int64  // start of the wait for una, or end of the last full timeout
	paused          int64  // time since which nothing is in flight, if una == next
	answer          answer // last response that was not progress
}

// answer describes the last response, for the text of an error.
type answer struct {
	at   int64  // time of its arrival; 0: none
	psn  uint32 // the PSN that the peer expects, or that of a READ response
	data bool   // the packet is a READ response
}

// maxTries is the number of retransmissions of una whose READ responses count as evidence
// of progress.
const maxTries = 64

// lateParts is the part of a full timeout by which a timer may be late before that counts as
// a sign that the process did not run.
const lateParts = 8

func (t *retries) init(c transmission, una uint32) {
	*t = retries{count: c.RetryCount, rnrCount: c.RNRRetry, left: c.RetryCount, rnrLeft: c.RNRRetry, sackHigh: una}
}

// renew renews the retries and restarts the full timeout.
func (t *retries) renew(now int64) { t.left, t.since, t.paused = t.count, now, now }

// progressed records that una advanced.
func (t *retries) progressed(una uint32, now int64) {
	t.renew(now)
	t.rnrLeft, t.tries = t.rnrCount, 0
	raise(&t.sackHigh, una)
}

// restarts records that a packet is sent while none is in flight. The time since the last
// one was in flight does not count.
func (t *retries) restarts(now int64) { t.since += now - t.paused }

// stops records that nothing is in flight any more, because una is to be sent again.
func (t *retries) stops(now int64) { t.paused = now }

// late reports whether a full timeout has passed without progress.
func (t *retries) late() bool { return t.left < t.count }

// owe records that n READ responses were requested, for the first time or again.
func (t *retries) owe(n uint32) {
	if t.tries < maxTries {
		t.owed += int32(n)
	}
}

// tried records that una was retransmitted, or that its response was asked for again.
func (t *retries) tried() {
	if t.tries < maxTries {
		t.tries++
	}
}

// readAnswered records that a response of a READ arrived. It is evidence of progress as
// long as no more responses arrive than were requested.
func (t *retries) readAnswered(now int64) {
	if t.owed > 0 {
		t.owed--
		t.renew(now)
	}
}

// sackArrived records that a SelectiveAck reported packets up to psn. That is evidence of
// progress only as often as there are packets in flight, even if una is never executed.
func (t *retries) sackArrived(psn uint32, now int64) {
	if psnDiff(psn, t.sackHigh) > 0 {
		t.sackHigh = psn
		t.renew(now)
	}
}

// notReady records an RNR NAK for una, and reports whether it may be sent again.
func (t *retries) notReady(now int64) bool {
	t.renew(now)
	switch t.rnrLeft {
	case 7: // no limit
	case 0:
		return false
	default:
		t.rnrLeft--
	}
	return true
}

// note records when response k arrived and which PSN it shows. If the QP fails later, the text of the error
// names the last response.
func (t *retries) note(k *packet, now int64) {
	switch {
	case k.isReadResponse():
		t.answer = answer{at: now, psn: k.PSN, data: true}
	case k.Opcode == wire.Acknowledge:
		aeth, _, _ := wire.ParseAETH(k.ext)
		switch {
		case aeth.Syndrome.Kind() == wire.KindACK:
			t.peerExpects(psnAdd(k.PSN, 1), now)
		case aeth.Syndrome == wire.NAKSequence:
			t.peerExpects(k.PSN, now)
		}
	}
}

// peerExpects records that the peer, by its last response, expects packet psn next.
func (t *retries) peerExpects(psn uint32, now int64) { t.answer = answer{at: now, psn: psn} }

// lastAnswer returns the last response, if it arrived during the last full timeout.
func (t *retries) lastAnswer() (a answer, ok bool) { return t.answer, t.answer.at > t.since }

// Results of retries.expire.
const (
	notExpired = iota // the full timeout has not passed
	prolonged         // the timeout was prolonged
	timedOut          // the timeout used up a retry
	exhausted         // the timeout used up the last retry
)

// expire handles a timer that fires late ns late. full is the full timeout.
func (t *retries) expire(now, full, late int64) int {
	if full == 0 || now < t.since+full {
		return notExpired
	}
	if late > full/lateParts && !t.starved {
		// This process did not run for a while. Answers may wait in the
		// socket, and the timer must not count before they are read.
		t.starved = true
		t.since = now - full + min(late, full)
		return prolonged
	}
	t.starved = false
	if t.left == 0 {
		return exhausted
	}
	t.left--
	t.since = now
	return timedOut
}
