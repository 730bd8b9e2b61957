package roce

import "github.com/softmkey/softmkey/internal/net/wire"

// recovery is what a connection does about packets that are lost: which it keeps, what it reports, what it
// sends again, and when. There are two: [standard], which every adapter knows, and [selective], for two ends
// that both offer [CapSelective]. A connection chooses once, when its peer becomes known; all else in this
// package asks its recovery, and not which one it is.
//
// A recovery has no state but that of its QP. All methods are called with the lock of the QP held. The headers that
// they get have the opcode of the RC service, whatever the service is.
type recovery interface {
	// The requester sends.

	// divides reports whether w, a READ that is about to begin, is to be sent in parts.
	divides(w *Work) bool
	// grants returns the number of responses, from response i of READ or atomic w on, that its request lets the
	// peer send at once, and whether the request must wait until the windows have room.
	grants(w *Work, i uint32) (n uint32, waits bool)
	// requests records that the requests for n PSNs of w are about to be counted as sent, from next on. grant is
	// the number that grants returned.
	requests(w *Work, n, grant uint32)
	// requestMark returns the mark in the header of a SEND or WRITE packet.
	requestMark() uint8
	// putAsks adds a packet that grants and asks for responses, if there is anything to grant or to ask for. It
	// reports whether the trains had room.
	putAsks(b *builder, now int64) bool
	// retransmit sends again what is known to be lost, before any new request: as much as the budget of the turn
	// allows, of which left remains. stop means that nothing else can be sent in this turn; more means that the
	// QP needs another turn.
	retransmit(b *builder, now, budget int64) (left int64, stop, more bool)
	// probe sends w, the Work of una, or its missing responses again, because no answer has come for about a round
	// trip. It reports whether the trains had room.
	probe(b *builder, w *Work, now int64) bool
	// probeAfter returns the time of the next probe.
	probeAfter() int64

	// The requester receives.

	// stale handles a response to a PSN before una.
	stale(h wire.BTH, now int64)
	// responseArrived records that a response to a READ or atomic arrived from the network. It reports whether that
	// may show the loss of others, so that findLost is to be called once the response is handled.
	responseArrived(h wire.BTH, now int64) bool
	// findLost finds out which responses were lost, after responseArrived has reported true.
	findLost(now int64)
	// ackArrived handles an acknowledgement of PSN psn. reached says that una has moved past it; otherwise una waits
	// for the response to a READ or atomic.
	ackArrived(psn uint32, reached bool, now int64)
	// sequenceNAK handles a report of the peer that request psn was lost. reached is as for ackArrived.
	sequenceNAK(psn uint32, reached bool, now int64)
	// reportedLost handles another answer of the peer to a later request, which shows that the response of una was lost.
	reportedLost(now int64)
	// onlyProbeArrived handles an acknowledgement of exactly the packet psn, which was sent as a probe, although later
	// packets are in flight.
	onlyProbeArrived(psn uint32, now int64)
	// fits reports whether a response may be response i of READ w; end says that it is a last or only one.
	fits(w *Work, i uint32, end bool) bool
	// expects reports whether the peer may have sent response psn of w, which arrived before an earlier one.
	expects(w *Work, psn uint32) bool
	// completes records that all responses of a READ or atomic have arrived, before its completion is reported.
	completes()
	// findGaps finds the responses to ask for, after a batch of packets.
	findGaps(now int64)
	// packet handles a packet that the standard does not have, and reports whether it knows it.
	packet(b []byte, now int64) bool

	// The responder.

	// requestAhead handles a request that is d PSNs after the expected one. raw is the whole packet.
	requestAhead(h wire.BTH, raw []byte, d int, now int64)
	// requestMarked handles the mark of an expected SEND or WRITE packet, which is not 0.
	requestMarked(mark uint8)
	// opens prepares the answer to a new READ, whose request has a mark. before is the READ or atomic before it, if any.
	opens(e *resource, before resource, mark uint8)
	// requestedAgain handles a repeated request, from response i of READ e on, that arrives while e is being
	// answered. It reports whether the answer goes on as it is.
	requestedAgain(e *resource, i uint32, mark uint8) bool
}

// chooseRecovery chooses the recovery of a connection.
func (q *QP) chooseRecovery(repeatsSelectively bool) {
	if repeatsSelectively {
		q.recovery = selective{q}
	} else {
		q.recovery = standard{q}
	}
}
