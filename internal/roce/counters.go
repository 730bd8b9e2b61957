package roce

import (
	"reflect"
	"sync/atomic"

	"github.com/softmkey/softmkey/rdma"
)

// counters holds the fields of [rdma.Counters], in the same order, as atomic values. Counts of
// packets are added once per batch.
type counters struct {
	SentPackets, SentBytes, SentTrains, SendErrors atomic.Uint64

	RecvPackets, RecvBytes, RecvTrains atomic.Uint64

	Malformed, BadICRC, BadPKey, UnknownQP, UnknownSource, WrongGID, WrongState, WrongService atomic.Uint64

	BadQKey, NoReceive, TooLong, DroppedMessages atomic.Uint64

	Retransmitted, Timeouts, Losses, LostPackets, Probes, SequenceNAKsReceived, RNRReceived,
	ErrorNAKsReceived, StaleResponses, CNPReceived atomic.Uint64

	DuplicateRequests, StaleRequests, OutOfSequence, SequenceNAKsSent, RNRSent,
	ErrorNAKsSent, ECNMarked, CNPSent atomic.Uint64

	WriteRequests, ReadRequests, AtomicRequests, DCTConnects, AccessNAKsSent, ImpliedNAKs,
	MulticastSent, MulticastReceived atomic.Uint64
}

// CounterSet counts what some QPs of a port do, beside the port's own counters, as the queue counters of an adapter do:
// WriteRequests, ReadRequests and AtomicRequests, NoReceive and RNRSent, OutOfSequence and DuplicateRequests,
// RNRReceived, SequenceNAKsReceived and ImpliedNAKs, Timeouts, Probes and Retransmitted. The zero value is ready for
// use.
type CounterSet struct{ n counters }

// Counters returns the counters of the set. Those that a set does not count are 0.
func (s *CounterSet) Counters() rdma.Counters { return s.n.snapshot() }

// CountIn makes a set count what the QP does from now on, in place of the set before; nil: none.
func (q *QP) CountIn(s *CounterSet) { q.set.Store(s) }

// count counts what the QP does, in the counters of the port and in those of its set.
func (q *QP) count(add func(*counters)) {
	add(&q.port.n)
	if s := q.set.Load(); s != nil {
		add(&s.n)
	}
}

// snapshot reads all counters.
func (n *counters) snapshot() (c rdma.Counters) {
	from, to := reflect.ValueOf(n).Elem(), reflect.ValueOf(&c).Elem()
	for i := range to.NumField() {
		f := from.FieldByName(to.Type().Field(i).Name)
		to.Field(i).SetUint(f.Addr().Interface().(*atomic.Uint64).Load())
	}
	return c
}
