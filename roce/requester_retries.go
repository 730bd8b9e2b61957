package roce

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// Retries of the requester. A full timeout without progress uses up a retry. Progress
// renews the retries, and so does evidence of progress:
//
//   - a response of a READ that was requested, even if it is a copy of one that arrived
//     before, or comes after one that was lost: a slow peer answers repeated READs one
//     after the other and in full before it comes to the packet that counts;
//   - a SelectiveAck that reports packets after all that were reported before;
//   - an RNR NAK for the packet that counts, which RNRRetry limits.
//
// All of these are limited in number while una stays. Other packets of the peer are no
// evidence: acknowledgements of what was acknowledged before, NAKs for a lost packet, its
// own requests and congestion notifications. A peer that sends only these makes the QP
// fail as a silent one does.

// maxTries is the number of retransmissions of una whose READ responses count as evidence
// of progress.
const maxTries = 64

// renew renews the retries and restarts the full timeout.
func (q *QP) renew(now int64) {
	r := &q.req
	r.retries = q.send.RetryCount
	r.since, r.paused = now, now
}

// expect records that n READ responses were requested, for the first time or again.
func (r *requester) expect(n uint32) {
	if r.tries < maxTries {
		r.owed += int64(n)
	}
}

// tried records that packet psn is retransmitted, or that its response is asked for again.
func (r *requester) tried(psn uint32) {
	if psn == r.una && r.tries < maxTries {
		r.tries++
	}
}

// readAnswered records that a response of a READ arrived. It is evidence of progress as
// long as no more responses arrive than were requested.
func (q *QP) readAnswered(now int64) {
	if r := &q.req; r.owed > 0 {
		r.owed--
		q.renew(now)
	}
}

// answer describes a response, for the reason of a failure.
type answer struct {
	at   int64  // time of its arrival; 0: none
	psn  uint32 // the PSN that the peer expects, or that of a READ response
	data bool   // it is a READ response
}

// noteAnswer records response k.
func (r *requester) noteAnswer(k *packet, now int64) {
	switch {
	case k.isReadResponse():
		r.answer = answer{at: now, psn: k.PSN, data: true}
	case k.Opcode == wire.Acknowledge:
		aeth, _, _ := wire.ParseAETH(k.ext)
		switch {
		case aeth.Syndrome.Kind() == wire.KindACK:
			r.answer = answer{at: now, psn: psnAdd(k.PSN, 1)}
		case aeth.Syndrome == wire.NAKSequence:
			r.answer = answer{at: now, psn: k.PSN}
		}
	}
}

// noProgress returns the reason for StatusRetryExcErr: what the peer answered during the
// last full timeout, and what this side sends.
func (q *QP) noProgress() error {
	r, a := &q.req, &q.req.answer
	to := fmt.Sprintf("%v QP %#x, after %d retries of %v", q.recv.Peer, q.recv.DestQPN, q.send.RetryCount, AckTimeout(q.send.Timeout))
	switch {
	case a.at <= r.since:
		return fmt.Errorf("no answer to PSN %d from %s", r.una, to)
	case a.data:
		return fmt.Errorf("the peer sends the READ response of PSN %d; this side waits for that of %d (%s)", a.psn, r.una, to)
	}
	return fmt.Errorf("the peer expects PSN %d and acknowledges %d; this side sends %d (%s)", a.psn, psnAdd(a.psn, -1), r.una, to)
}
