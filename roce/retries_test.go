package roce

import (
	"fmt"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// TestPeerWithoutProgress plays peers that answer again and again without
// executing the oldest request. The QP must fail as if the peer were silent,
// and name the PSNs that do not fit.
func TestPeerWithoutProgress(t *testing.T) {
	const mtu, psn = 256, 5000
	ack := func(p uint32, s wire.Syndrome) []byte { return pkt(wire.Acknowledge, p, false, 0, aeth(s)) }
	response := func(op wire.Opcode, p uint32, n int) []byte {
		if op == wire.ReadResponseMiddle {
			return pkt(op, p, false, n)
		}
		return pkt(op, p, false, n, aeth(wire.ACKNoCredits))
	}
	write := func() *Work { return &Work{Op: rdma.WRWrite, Src: &source{b: pattern(8, 1)}, Length: 5, RKey: 1} }
	read := func() *Work {
		return &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, 4*mtu)}, Length: 4 * mtu, RKey: 1}
	}
	bits := func(b byte) []byte { return []byte{b, 0, 0, 0} }
	turn := uint32(0)
	for _, v := range []struct {
		name      string
		selective bool
		work      []*Work
		answers   func() [][]byte
		reason    string
	}{
		{"nothing", false, []*Work{write()}, func() [][]byte { return nil }, "no answer to PSN 0x1388 from 10.0.0.2:4791"},
		{"ACK of an older packet", false, []*Work{write()}, func() [][]byte { return [][]byte{ack(6, wire.ACKNoCredits)} },
			"the peer expects PSN 0x7 and acknowledges 0x6; this side sends 0x1388"},
		{"ACK of a packet that was never sent", false, []*Work{write()}, func() [][]byte { return [][]byte{ack(9006, wire.ACKNoCredits)} },
			"the peer expects PSN 0x232f and acknowledges 0x232e; this side sends 0x1388"},
		{"sequence NAK for an older packet", false, []*Work{write()}, func() [][]byte { return [][]byte{ack(7, wire.NAKSequence)} },
			"the peer expects PSN 0x7 and acknowledges 0x6; this side sends 0x1388"},
		{"sequence NAK for the packet", false, []*Work{write()}, func() [][]byte { return [][]byte{ack(psn, wire.NAKSequence)} },
			"the peer expects PSN 0x1388 and acknowledges 0x1387; this side sends 0x1388"},
		{"RNR NAK behind a READ", false, []*Work{read(), write()}, func() [][]byte { return [][]byte{ack(psn+4, wire.RNR(1))} }, "no answer to PSN 0x1388"},
		{"error NAK behind a READ", false, []*Work{read(), write()}, func() [][]byte { return [][]byte{ack(psn+4, wire.NAKRemoteAccess)} }, "no answer to PSN 0x1388"},
		{"ACK behind a READ", false, []*Work{read(), write()}, func() [][]byte { return [][]byte{ack(psn+4, wire.ACKNoCredits)} },
			"the peer expects PSN 0x138d and acknowledges 0x138c; this side sends 0x1388"},
		{"READ without its first response", false, []*Work{read()}, func() [][]byte {
			return [][]byte{response(wire.ReadResponseMiddle, psn+1, mtu), response(wire.ReadResponseMiddle, psn+2, mtu), response(wire.ReadResponseLast, psn+3, mtu)}
		}, "the peer sends the READ response of PSN 0x138b; this side waits for that of 0x1388"},
		{"responses of an older READ", false, []*Work{read()}, func() [][]byte { return [][]byte{response(wire.ReadResponseOnly, 40, mtu)} },
			"the peer sends the READ response of PSN 0x28; this side waits for that of 0x1388"},
		{"results of an older atomic", false, []*Work{write()}, func() [][]byte {
			return [][]byte{pkt(wire.AtomicAcknowledge, 40, false, 0, aeth(wire.ACKNoCredits), make([]byte, 8))}
		}, "no answer to PSN 0x1388"},
		{"congestion notifications", false, []*Work{write()}, func() [][]byte {
			b := make([]byte, wire.CNPLen)
			wire.PutCNP(b, 0)
			return [][]byte{b}
		}, "no answer to PSN 0x1388"},
		{"requests of its own", false, []*Work{write()}, func() [][]byte {
			turn++
			return [][]byte{pkt(wire.WriteOnly, turn-1, true, 4, reth(1, 0, 4))}
		}, "no answer to PSN 0x1388"},
		{"SelectiveAck of older packets", true, []*Work{write()}, func() [][]byte { return [][]byte{selectivePacket(wire.SelectiveAck, 7, bits(0xff))} },
			"the peer expects PSN 0x7 and acknowledges 0x6; this side sends 0x1388"},
		{"SelectiveAck of the later packets", true, []*Work{write(), write(), write(), write(), write(), write()}, func() [][]byte {
			return [][]byte{selectivePacket(wire.SelectiveAck, psn, bits(0x1f))}
		}, "the peer expects PSN 0x1388 and acknowledges 0x1387; this side sends 0x1388"},
		{"SelectiveAck of the packet itself, executed never", true, []*Work{write(), write()}, func() [][]byte {
			return [][]byte{selectivePacket(wire.SelectiveAck, psn-3, bits(0xff))}
		}, "the peer expects PSN 0x1385 and acknowledges 0x1384; this side sends 0x1388"},
		{"READ without its first response, selective", true, []*Work{read()}, func() [][]byte {
			return [][]byte{response(wire.ReadResponseMiddle, psn+1, mtu), response(wire.ReadResponseMiddle, psn+2, mtu), response(wire.ReadResponseLast, psn+3, mtu)}
		}, "the peer sends the READ response of PSN 0x138b; this side waits for that of 0x1388"},
		{"grants of its own", true, []*Work{write()}, func() [][]byte { return [][]byte{selectivePacket(wire.RepeatResponses, 0, nil)} }, "no answer to PSN 0x1388"},
	} {
		t.Run(v.name, func(t *testing.T) {
			const retry = 3
			turn = 0
			l := alone(t, 0, pairOptions{mtu: mtu, psn: [2]uint32{psn, 0}, retry: retry, timeout: 12, selective: v.selective})
			l.m.keys[1] = make([]byte, 64)
			l.post(0, v.work...)
			l.sent()
			full := int64(AckTimeout(12))
			start := l.clock
			// The responses of READs are evidence until as many have arrived as were requested.
			limit := (retry + 1) * full
			if v.work[0].Op == rdma.WRRead {
				limit += (maxTries + 1) * 4 * full
			}
			for l.q.State() == rdma.StateRTS && l.clock < start+limit+full {
				l.clock += full / 50
				l.port[0].expire(l.clock)
				l.arrive(v.answers()...)
				l.drain(0)
			}
			if len(l.m.ended) == 0 || l.m.ended[0].st != rdma.StatusRetryExcErr {
				t.Fatalf("%d completions after %d full timeouts, state %v", len(l.m.ended), (l.clock-start)/full, l.q.State())
			}
			if d := l.clock - start; d > limit+full/2 {
				t.Errorf("failed after %d µs, a silent peer takes %d", d/1000, limit/1000)
			}
			if got := l.m.ended[0].w.Err.Error(); !strings.HasPrefix(got, v.reason) {
				t.Errorf("reason %q, want %q", got, v.reason)
			}
		})
	}
}

// TestPSNsDiffer connects QPs whose first PSNs do not fit each other.
func TestPSNsDiffer(t *testing.T) {
	for _, first := range []uint32{0, 5000, 0xfffff0} {
		for _, selective := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, selective=%v", first, selective), func(t *testing.T) {
				o := pairOptions{psn: [2]uint32{7, 7}, timeout: 12, retry: 2, selective: selective}
				p := newPair(t, o)
				p.qp[0].Reset()
				o.defaults()
				o.psn[0] = first
				p.start(0, p.qp[0], p.qp[1], o)
				p.mem[1].keys[1] = make([]byte, 100)
				start := p.clock
				for range 4 {
					p.post(0, &Work{Op: rdma.WRWrite, Src: &source{b: make([]byte, 100)}, Length: 100, RKey: 1})
				}
				p.run(1 << 14)
				p.mem[0].statuses(rdma.StatusRetryExcErr, rdma.StatusWRFlushErr, rdma.StatusWRFlushErr, rdma.StatusWRFlushErr)
				if d, most := p.clock-start, 7*int64(AckTimeout(12))/2; d > most {
					t.Errorf("failed after %d µs, want %d at most", d/1000, most/1000)
				}
				want := fmt.Sprintf("the peer expects PSN 0x7 and acknowledges 0x6; this side sends %#x (10.0.0.2:4791 QP %#x, after 2 retries of %v)",
					first, p.qp[1].num, AckTimeout(12))
				if got := p.mem[0].ended[0].w.Err.Error(); got != want {
					t.Errorf("reason %q, want %q", got, want)
				}
			})
		}
	}
}

// TestSlowAnswerIsProgress loses the first response of a READ and lets the peer send the
// others more slowly than all full timeouts together. The READ is being answered, so the QP
// must wait until its first response comes, with the second answer.
func TestSlowAnswerIsProgress(t *testing.T) {
	const mtu, packets, retry, psn = 256, 200, 2, 5000
	l := alone(t, 0, pairOptions{mtu: mtu, retry: retry, psn: [2]uint32{psn, 0}})
	dst := make([]byte, packets*mtu)
	l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: dst}, Length: packets * mtu, RKey: 1})
	l.sent()
	full := int64(AckTimeout(l.q.send.Timeout))
	start := l.clock
	for i := 1; i < packets; i++ {
		l.pass(full / 10)
		l.give(readResponse(psn, i, packets, mtu))
	}
	if l.clock-start < 2*(retry+1)*full {
		t.Fatal("the answer was not slow")
	}
	l.m.statuses()
	for i := range packets {
		l.pass(full / 10)
		l.give(readResponse(psn, i, packets, mtu))
	}
	l.m.statuses(rdma.StatusSuccess)
	// After that the peer is silent, and the copies that it was asked for do
	// not count as progress.
	l.post(0, &Work{Op: rdma.WRWrite, Src: &source{b: dst}, Length: 5, RKey: 1})
	l.sent()
	l.pass((retry + 1) * full * 5 / 4)
	l.m.statuses(rdma.StatusSuccess, rdma.StatusRetryExcErr)
}
