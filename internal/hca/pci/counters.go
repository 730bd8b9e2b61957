package pci

import (
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// counterSet is a set of queue counters. mlx5_ib makes one for all QPs of the port, and one for those that
// `rdma statistic qp` gives their own; mlx5e makes one for its receive queues.
type counterSet struct {
	qps  roce.CounterSet // of the QPs that name the set
	base rdma.Counters   // of qps when the set was cleared
	lost uint64          // frames for receive queues of the set that had no buffer, at that time
}

// lastCounterSet is the largest number of a set.
const lastCounterSet = 255

// roceCounters returns the counters of the port's RDMA side, which are 0 before ENABLE_HCA.
func (f *firmware) roceCounters() rdma.Counters {
	if f.rdma.dev == nil {
		return rdma.Counters{}
	}
	return f.rdma.dev.Engine().Port().Counters()
}

func (f *firmware) allocCounter(c *call) error {
	n, err := f.counters.add(new(counterSet))
	c.set(0x58, 8, uint64(n))
	if err == nil && f.port != nil {
		f.counters.objects[n].lost = f.port.NoBuffer(uint8(n))
	}
	return err
}

// The place of counter_set_id in a command that has a QP context, and the bit of opt_param_mask that selects it.
const (
	qpCounterSet  = 0x18*8 + 0x60
	optCounterSet = 1 << 25
)

// namedSet returns the QP of a command that was executed, and the counter set that the command gives it; nil: none.
func (f *firmware) namedSet(c *call) (qp uint32, set *counterSet) {
	qp = prm.NumberOf(c.In)
	switch c.Command {
	case prm.CmdCreateQP:
		qp = prm.NumberOf(c.Out)
	case prm.CmdRst2InitQP, prm.CmdInit2InitQP:
	case prm.CmdInit2RTRQP, prm.CmdRTR2RTSQP, prm.CmdRTS2RTSQP:
		if c.in32(0x80, 32)&optCounterSet == 0 {
			return qp, nil
		}
	default:
		return 0, nil
	}
	return qp, f.counters.objects[c.in32(qpCounterSet, 8)]
}

// countQP lets a QP count in the set that a command has given it.
func (f *firmware) countQP(c *call) {
	if qp, set := f.namedSet(c); set != nil {
		f.rdma.ctx.CountQP(qp, &set.qps)
	}
}

const outOfBuffer = 0x180

// queryCounter answers the counters of a set, and clears them if the command says so. Those that are not in
// adapter.QueueCounters count events that the adapter does not have, and are 0. Counters have 32 bits and wrap.
func (f *firmware) queryCounter(c *call) error {
	n := c.in32(0xf8, 8)
	s, err := f.counters.get(n)
	if err != nil {
		return err
	}
	now := s.qps.Counters()
	for _, q := range adapter.QueueCounters {
		c.set(q.Off, 32, q.Of(&now)-q.Of(&s.base))
	}
	lost := f.port.NoBuffer(uint8(n))
	c.set(outOfBuffer, 32, prm.Bits(c.Out, outOfBuffer, 32)+lost-s.lost)
	if c.flag(0xc0) {
		s.base, s.lost = now, lost
	}
	return nil
}

// Pairs of counters in the answer to QUERY_VPORT_COUNTER: packets, then bytes. A received pair comes before the
// sent one. The pairs of errors (0 and 1) stay 0: a frame that is damaged does not reach the port.
const (
	pairRDMA          = 2 // the port counts the bytes of all RDMA packets together: they are here
	pairRDMAMulticast = 4
	pairBroadcast     = 6
	pairUnicast       = 8
	pairMulticast     = 10
)

// queryVPortCounter answers the counters of frames and of RDMA packets: for each kind a pair of frames and
// bytes, received and sent.
func (f *firmware) queryVPortCounter(c *call) error {
	put := func(pair int, n ether.Count) {
		c.set(0x80+128*pair, 64, n.Frames)
		c.set(0x80+128*pair+64, 64, n.Bytes)
	}
	rdma := f.roceCounters()
	put(pairRDMA, ether.Count{Frames: rdma.RecvPackets - min(rdma.RecvPackets, rdma.MulticastReceived), Bytes: rdma.RecvBytes})
	put(pairRDMA+1, ether.Count{Frames: rdma.SentPackets - min(rdma.SentPackets, rdma.MulticastSent), Bytes: rdma.SentBytes})
	put(pairRDMAMulticast, ether.Count{Frames: rdma.MulticastReceived})
	put(pairRDMAMulticast+1, ether.Count{Frames: rdma.MulticastSent})
	counts := f.port.Counters()
	for kind, pair := range map[ether.Kind]int{ether.Broadcast: pairBroadcast, ether.Unicast: pairUnicast, ether.Multicast: pairMulticast} {
		put(pair, counts.Received[kind])
		put(pair+1, counts.Sent[kind])
	}
	return nil
}
