package rdma

// Counters count the work of a device since it was opened. A train is a run of packets
// that the system takes or returns as one buffer.
type Counters struct {
	SentPackets uint64 `json:"sent_packets" help:"Packets sent"`
	SentBytes   uint64 `json:"sent_bytes" help:"Bytes of UDP payload sent"`
	SentTrains  uint64 `json:"sent_trains" help:"Groups of packets that were given to the system together"`
	SendErrors  uint64 `json:"send_errors" help:"Groups of packets that the system failed to send"`

	RecvPackets uint64 `json:"recv_packets" help:"Packets received"`
	RecvBytes   uint64 `json:"recv_bytes" help:"Bytes of UDP payload received"`
	RecvTrains  uint64 `json:"recv_trains" help:"Groups of packets that the system gave together"`

	// Dropped packets, by reason.
	Malformed     uint64 `json:"malformed" help:"Packets dropped: wrong length, unknown opcode and similar"`
	BadICRC       uint64 `json:"bad_icrc" help:"Packets dropped: wrong invariant CRC"`
	BadPKey       uint64 `json:"bad_pkey" help:"Packets dropped: another partition key"`
	UnknownQP     uint64 `json:"unknown_qp" help:"Packets dropped: unknown QP number"`
	UnknownSource uint64 `json:"unknown_source" help:"Packets dropped: not from the connected peer"`
	WrongGID      uint64 `json:"wrong_gid" help:"Packets dropped: sent to another address of the port than the QP's"`
	WrongState    uint64 `json:"wrong_state" help:"Packets dropped: the QP's state does not receive packets of this kind"`
	WrongService  uint64 `json:"wrong_service" help:"Packets dropped: another transport service than the QP's"`

	// Dropped datagrams, and dropped messages of unreliable connections.
	BadQKey         uint64 `json:"bad_qkey" help:"Datagrams dropped: another Q_Key"`
	NoReceive       uint64 `json:"no_receive" help:"Datagrams and messages dropped: no receive request was posted"`
	TooLong         uint64 `json:"too_long" help:"Datagrams dropped: longer than the receive request"`
	DroppedMessages uint64 `json:"dropped_messages" help:"Messages of unreliable connections dropped: a packet was lost or the request was rejected"`

	// The requester.
	Retransmitted        uint64 `json:"retransmitted" help:"Packets sent again"`
	Timeouts             uint64 `json:"timeouts" help:"Timeouts of requesters without an answer"`
	Losses               uint64 `json:"losses" help:"Responses that reported a loss"`
	LostPackets          uint64 `json:"lost_packets" help:"Packets that were in flight when a loss was reported: all are sent again"`
	Probes               uint64 `json:"probes" help:"Packets sent again after about a round trip without progress"`
	SequenceNAKsReceived uint64 `json:"sequence_naks_received" help:"Sequence NAKs received: the responder missed a packet"`
	RNRReceived          uint64 `json:"rnr_received" help:"RNR NAKs received: the responder had no receive request"`
	ErrorNAKsReceived    uint64 `json:"error_naks_received" help:"NAKs received that end a request"`
	StaleResponses       uint64 `json:"stale_responses" help:"Responses to no outstanding request"`
	CNPReceived          uint64 `json:"cnp_received" help:"Congestion notifications received"`

	// The responder.
	DuplicateRequests uint64 `json:"duplicate_requests" help:"Request packets that came again"`
	StaleRequests     uint64 `json:"stale_requests" help:"Request packets that came again and can no longer be answered"`
	OutOfSequence     uint64 `json:"out_of_sequence" help:"Request packets after a missing one"`
	SequenceNAKsSent  uint64 `json:"sequence_naks_sent" help:"Sequence NAKs sent"`
	RNRSent           uint64 `json:"rnr_sent" help:"RNR NAKs sent: no receive request was posted"`
	ErrorNAKsSent     uint64 `json:"error_naks_sent" help:"NAKs sent that end a request"`
	ECNMarked         uint64 `json:"ecn_marked" help:"Packets that arrived with a congestion mark"`
	CNPSent           uint64 `json:"cnp_sent" help:"Congestion notifications sent"`

	// Requests of peers that the QP's rights allow, before their keys are looked at, and without
	// repeated ones.
	WriteRequests  uint64 `json:"write_requests" help:"WRITEs of peers that the QP's rights allow, without repeated ones"`
	ReadRequests   uint64 `json:"read_requests" help:"READs of peers that the QP's rights allow, without repeated ones"`
	AtomicRequests uint64 `json:"atomic_requests" help:"Atomics of peers that the QP's rights allow, without repeated ones"`
	DCTConnects    uint64 `json:"dct_connects" help:"Connections of initiators to dynamically connected targets"`
	AccessNAKsSent uint64 `json:"access_naks_sent" help:"NAKs sent with remote access error"`

	ImpliedNAKs uint64 `json:"implied_naks" help:"Responses after which the requester asked for lost ones"`

	// Packets to and from multicast groups, which the counts of packets include.
	MulticastSent     uint64 `json:"multicast_sent" help:"Packets sent to multicast groups"`
	MulticastReceived uint64 `json:"multicast_received" help:"Packets received from multicast groups"`
}
