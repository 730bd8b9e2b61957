package rdma

// Counters count the work of a device since it was opened. A train is a run of packets
// that the system takes or returns as one buffer.
type Counters struct {
	SentPackets uint64 `json:"sent_packets"`
	SentBytes   uint64 `json:"sent_bytes"` // bytes of UDP payload
	SentTrains  uint64 `json:"sent_trains"`
	SendErrors  uint64 `json:"send_errors"` // trains that the system failed to send

	RecvPackets uint64 `json:"recv_packets"`
	RecvBytes   uint64 `json:"recv_bytes"`
	RecvTrains  uint64 `json:"recv_trains"`

	// Dropped packets, by reason.
	Malformed     uint64 `json:"malformed"`      // wrong length, unknown opcode and similar
	BadICRC       uint64 `json:"bad_icrc"`       // wrong invariant CRC
	BadPKey       uint64 `json:"bad_pkey"`       // another partition key
	UnknownQP     uint64 `json:"unknown_qp"`     // unknown QP number
	UnknownSource uint64 `json:"unknown_source"` // not from the connected peer
	WrongGID      uint64 `json:"wrong_gid"`      // sent to another address of the port than the QP's
	WrongState    uint64 `json:"wrong_state"`    // the QP's state does not receive packets of this kind
	WrongService  uint64 `json:"wrong_service"`  // another transport service than the QP's

	// Dropped datagrams, and dropped messages of unreliable connections.
	BadQKey         uint64 `json:"bad_qkey"`
	NoReceive       uint64 `json:"no_receive"`       // no receive request was posted
	TooLong         uint64 `json:"too_long"`         // datagrams longer than the receive request
	DroppedMessages uint64 `json:"dropped_messages"` // because a packet was lost or the request was rejected

	// The requester.
	Retransmitted        uint64 `json:"retransmitted"` // packets
	Timeouts             uint64 `json:"timeouts"`
	Losses               uint64 `json:"losses"`       // responses that reported a loss
	LostPackets          uint64 `json:"lost_packets"` // packets that were in flight when a loss was reported: all are sent again
	Probes               uint64 `json:"probes"`       // packets retransmitted after about a round trip without progress
	SequenceNAKsReceived uint64 `json:"sequence_naks_received"`
	RNRReceived          uint64 `json:"rnr_received"`
	ErrorNAKsReceived    uint64 `json:"error_naks_received"`
	StaleResponses       uint64 `json:"stale_responses"` // responses to no outstanding request
	CNPReceived          uint64 `json:"cnp_received"`

	// The responder.
	DuplicateRequests uint64 `json:"duplicate_requests"`
	StaleRequests     uint64 `json:"stale_requests"`  // duplicates that can no longer be answered
	OutOfSequence     uint64 `json:"out_of_sequence"` // packets after a missing one
	SequenceNAKsSent  uint64 `json:"sequence_naks_sent"`
	RNRSent           uint64 `json:"rnr_sent"`
	ErrorNAKsSent     uint64 `json:"error_naks_sent"`
	ECNMarked         uint64 `json:"ecn_marked"` // packets that arrived with a congestion mark
	CNPSent           uint64 `json:"cnp_sent"`

	// Requests of peers that the QP's rights allow, before their keys are looked at, and without
	// repeated ones.
	WriteRequests  uint64 `json:"write_requests"`
	ReadRequests   uint64 `json:"read_requests"`
	AtomicRequests uint64 `json:"atomic_requests"`
	DCTConnects    uint64 `json:"dct_connects"`
	AccessNAKsSent uint64 `json:"access_naks_sent"` // those of ErrorNAKsSent with "remote access error"

	ImpliedNAKs uint64 `json:"implied_naks"` // responses after which the requester asked for lost ones

	// Packets to and from multicast groups, which the counts of packets include.
	MulticastSent     uint64 `json:"multicast_sent"`
	MulticastReceived uint64 `json:"multicast_received"`
}
