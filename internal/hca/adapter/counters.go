package adapter

import "github.com/softmkey/softmkey/rdma"

// QueueCounters are the counters of QPs under the names of mlx5's driver (counters.c): those of a port's folder
// hw_counters, and those of a counter set.
var QueueCounters = []struct {
	Name string
	Off  int // in bits, of the 32 in the answer to QUERY_Q_COUNTER
	Of   func(n *rdma.Counters) uint64
}{
	{"rx_write_requests", 0x80, func(n *rdma.Counters) uint64 { return n.WriteRequests }},
	{"rx_read_requests", 0xc0, func(n *rdma.Counters) uint64 { return n.ReadRequests }},
	{"rx_atomic_requests", 0x100, func(n *rdma.Counters) uint64 { return n.AtomicRequests }},
	{"out_of_buffer", 0x180, func(n *rdma.Counters) uint64 { return n.RNRSent + n.NoReceive }},
	{"out_of_sequence", 0x1c0, func(n *rdma.Counters) uint64 { return n.OutOfSequence }},
	{"duplicate_request", 0x200, func(n *rdma.Counters) uint64 { return n.DuplicateRequests }},
	{"rnr_nak_retry_err", 0x240, func(n *rdma.Counters) uint64 { return n.RNRReceived }},
	{"packet_seq_err", 0x280, func(n *rdma.Counters) uint64 { return n.SequenceNAKsReceived }},
	{"implied_nak_seq_err", 0x2c0, func(n *rdma.Counters) uint64 { return n.ImpliedNAKs }},
	{"local_ack_timeout_err", 0x300, func(n *rdma.Counters) uint64 { return n.Timeouts }},
	{"roce_adp_retrans", 0x640, func(n *rdma.Counters) uint64 { return n.Probes }},
	{"roce_adp_retrans_to", 0x660, func(n *rdma.Counters) uint64 { return n.Probes }}, // each follows its own timeout
}
