package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// selectivePacket builds a packet of selective repeat, or another one with the given body.
func selectivePacket(op wire.Opcode, psn uint32, body []byte) []byte {
	b := bth(wire.BTH{Opcode: op, MigReq: true, PKey: 0xffff, PSN: psn & psnMask})
	return append(append(b, body...), 0, 0, 0, 0)
}

// TestEndlessEarlyPackets sends an unlimited number of packets after a missing one. The
// QP must keep a bounded number of bytes, and free them when its connection ends.
func TestEndlessEarlyPackets(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 4096, selective: true})
	l.m.keys[1] = make([]byte, 4096)
	data := make([]byte, 4096)
	for i := range uint32(20000) {
		b := selectivePacket(wire.WriteOnly, i*7+1, append(reth(1, 0, 4096), data...))
		l.q.address(b)
		l.deliver(1, b, 0)
	}
	kept := l.port[1].recovery.used.Load()
	if kept == 0 || kept > maxEarlyBytes || l.q.resp.early.len() > maxEarly {
		t.Errorf("%d bytes are kept, for %d packets", kept, l.q.resp.early.len())
	}
	l.q.Reset()
	if n := l.port[1].recovery.used.Load(); n != 0 {
		t.Errorf("%d bytes are kept after Reset", n)
	}
}

// TestWildSelectiveAcks acknowledges packets that were never sent, and distant
// PSNs. Nothing may complete or fail, and the windows' byte counts must stay
// right.
func TestWildSelectiveAcks(t *testing.T) {
	l := alone(t, 0, pairOptions{mtu: 256, selective: true})
	l.post(0, &Work{Op: rdma.WRWrite, Src: &source{b: make([]byte, 2560)}, Length: 2560, RKey: 1})
	l.sent()
	ones := make([]byte, wire.MaxSelectiveAck/8)
	for i := range ones {
		ones[i] = 0xff
	}
	for _, psn := range []uint32{1 << 23, 11, 5000, psnMask - 70000} {
		l.give(selectivePacket(wire.SelectiveAck, psn, ones))
		l.m.statuses()
		l.invariants()
	}
	if l.q.req.una != 0 || l.q.State() != rdma.StateRTS {
		t.Errorf("una %d, state %v", l.q.req.una, l.q.State())
	}
	// The SelectiveAck reports all packets but the first, and packets that were
	// never sent. The first must be retransmitted once.
	for range 3 {
		l.give(selectivePacket(wire.SelectiveAck, 0, ones))
		l.invariants()
	}
	if n := l.port[0].Counters().Retransmitted; n != 1 {
		t.Errorf("%d packets were sent again, want 1", n)
	}
	l.m.statuses()
}

// TestWildRepeats repeatedly asks for responses that were never requested. The responder
// must not send any, and must do little work.
func TestWildRepeats(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 256, selective: true})
	var body []byte
	for i := range uint32(wire.MaxSpans) {
		body = append(body, span(wire.Span{First: i * 100000, Count: 1<<32 - 1})...)
	}
	for range 100 {
		l.expect(l.give(selectivePacket(wire.RepeatResponses, 77, body)), "")
	}
	if l.q.resp.repeats != nil || l.q.State() != rdma.StateRTS {
		t.Errorf("spans wait: %v, state %v", l.q.resp.repeats, l.q.State())
	}
}

// TestStandardPeer checks that a QP without selective repeat sends only packets of the
// standard.
func TestStandardPeer(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 256})
	l.m.keys[1] = make([]byte, 4096)
	l.expect(l.give(selectivePacket(wire.RepeatResponses, 0, make([]byte, 8))), "")
	l.expect(l.give(selectivePacket(wire.SelectiveAck, 0, make([]byte, 8))), "")
	if n := l.port[1].Counters().Malformed; n != 2 {
		t.Errorf("%d malformed packets, want 2", n)
	}
	l.expect(l.give(pkt(wire.WriteOnly, 1, true, 4, reth(1, 0, 4))), "Acknowledge 0 NAK 0")
}
