package roce

import (
	"reflect"
	"sync/atomic"
)

// Counters count the work of a [Port] since it was opened.
type Counters struct {
	SentPackets uint64 `json:"sent_packets"`
	SentBytes   uint64 `json:"sent_bytes"` // of UDP payload
	SentTrains  uint64 `json:"sent_trains"`
	SendErrors  uint64 `json:"send_errors"` // trains that the system refused

	RecvPackets uint64 `json:"recv_packets"`
	RecvBytes   uint64 `json:"recv_bytes"`
	RecvTrains  uint64 `json:"recv_trains"`

	// Packets that were dropped.
	Malformed     uint64 `json:"malformed"`      // too short, too long, an unknown opcode, ...
	BadICRC       uint64 `json:"bad_icrc"`       // damaged
	BadPKey       uint64 `json:"bad_pkey"`       // of another partition
	UnknownQP     uint64 `json:"unknown_qp"`     // no such QP number
	UnknownSource uint64 `json:"unknown_source"` // not from the connected peer
	WrongState    uint64 `json:"wrong_state"`    // the QP does not take such packets now
	WrongService  uint64 `json:"wrong_service"`  // of another service than the QP's

	// Datagrams and messages of unreliable connections that were dropped.
	BadQKey         uint64 `json:"bad_qkey"`
	NoReceive       uint64 `json:"no_receive"`       // no receive request was posted
	DroppedMessages uint64 `json:"dropped_messages"` // of an unreliable connection: a packet was lost, or the request was refused

	// The requester.
	Retransmitted        uint64 `json:"retransmitted"` // packets that were sent again
	Timeouts             uint64 `json:"timeouts"`
	Losses               uint64 `json:"losses"`       // times that responses reported a loss
	LostPackets          uint64 `json:"lost_packets"` // without selective repeat, all that are sent again
	Probes               uint64 `json:"probes"`       // packets sent again because nothing came for about a round trip
	SequenceNAKsReceived uint64 `json:"sequence_naks_received"`
	RNRReceived          uint64 `json:"rnr_received"`
	ErrorNAKsReceived    uint64 `json:"error_naks_received"`
	StaleResponses       uint64 `json:"stale_responses"` // to nothing that waits for one
	CNPReceived          uint64 `json:"cnp_received"`

	// Selective repeat.
	SelectiveAcksSent     uint64 `json:"selective_acks_sent"`
	SelectiveAcksReceived uint64 `json:"selective_acks_received"`
	EarlyPackets          uint64 `json:"early_packets"` // kept until packets before them came

	// The responder.
	DuplicateRequests uint64 `json:"duplicate_requests"`
	StaleRequests     uint64 `json:"stale_requests"`  // duplicates that cannot be answered any more
	OutOfSequence     uint64 `json:"out_of_sequence"` // packets that came too early
	SequenceNAKsSent  uint64 `json:"sequence_naks_sent"`
	RNRSent           uint64 `json:"rnr_sent"`
	ErrorNAKsSent     uint64 `json:"error_naks_sent"`
	ECNMarked         uint64 `json:"ecn_marked"` // packets with a congestion mark
	CNPSent           uint64 `json:"cnp_sent"`
}

// counters are Counters that any goroutine may add to: the same fields in the
// same order. What is counted for every packet is added up by batch first.
type counters struct {
	SentPackets, SentBytes, SentTrains, SendErrors atomic.Uint64

	RecvPackets, RecvBytes, RecvTrains atomic.Uint64

	Malformed, BadICRC, BadPKey, UnknownQP, UnknownSource, WrongState, WrongService atomic.Uint64

	BadQKey, NoReceive, DroppedMessages atomic.Uint64

	Retransmitted, Timeouts, Losses, LostPackets, Probes, SequenceNAKsReceived, RNRReceived,
	ErrorNAKsReceived, StaleResponses, CNPReceived atomic.Uint64

	SelectiveAcksSent, SelectiveAcksReceived, EarlyPackets atomic.Uint64

	DuplicateRequests, StaleRequests, OutOfSequence, SequenceNAKsSent, RNRSent,
	ErrorNAKsSent, ECNMarked, CNPSent atomic.Uint64
}

// snapshot reads all counters.
func (n *counters) snapshot() (c Counters) {
	from, to := reflect.ValueOf(n).Elem(), reflect.ValueOf(&c).Elem()
	for i := range to.NumField() {
		f := from.FieldByName(to.Type().Field(i).Name)
		to.Field(i).SetUint(f.Addr().Interface().(*atomic.Uint64).Load())
	}
	return c
}
