package roce

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// TestPayload has the payloads that two ends agree on.
func TestPayload(t *testing.T) {
	offer := func(n int) uint32 { return CapSelective | uint32(n/payloadUnit)<<capPayloadShift }
	for _, c := range []struct {
		name      string
		a, b      uint32
		mtu, want int
	}{
		{"Ethernet", offer(1408), offer(1408), 1024, 1408},
		{"jumbo frames", offer(8896), offer(8896), 4096, 8896},
		{"one side with jumbo frames", offer(8896), offer(1408), 1024, 1408},
		{"a tunnel", offer(1408), offer(1280), 1024, 1280},
		{"a shorter path MTU was asked for", offer(1408), offer(1408), 512, 512},
		{"a much shorter one", offer(8896), offer(8896), 1024, 1024},
		{"an older peer", offer(1408), CapSelective, 1024, 1024},
		{"a standard peer", offer(1408), 0, 1024, 1024},
		{"more than any device offers", ^uint32(0), ^uint32(0), 4096, wire.MaxPayload},
	} {
		common := CommonCaps(c.a, c.b)
		if back := CommonCaps(c.b, c.a); back != common {
			t.Errorf("%s: %#x and %#x in common", c.name, common, back)
		}
		if got := Payload(common, c.mtu); got != c.want {
			t.Errorf("%s: payload %d, want %d", c.name, got, c.want)
		}
		if want := c.a & c.b & CapSelective; common&CapSelective != want {
			t.Errorf("%s: capabilities %#x", c.name, common)
		}
	}
}

// agreed are connections of two devices that agree on a payload, and one without an agreement.
var agreed = []pairOptions{{mtu: 1024}, {mtu: 1024, payload: 1408}, {mtu: 4096, payload: wire.MaxPayload}}

// TestLongerThanAgreed delivers packets with a payload longer than the agreed one. Each must be refused
// and counted, and must change no memory.
func TestLongerThanAgreed(t *testing.T) {
	for _, o := range agreed {
		n := max(o.mtu, o.payload)
		long := n + 1
		largest := wire.MaxHeaders + max(largestMTU, n) // length of the longest packet that is parsed
		first := func() []byte { return pkt(wire.WriteFirst, 0, false, n, reth(1, 0, 4*n)) }
		sendFirst := func() []byte { return pkt(wire.SendFirst, 0, false, n) }
		written := make([]byte, 4*n)

		responder := func(t *testing.T, o pairOptions) *single {
			l := alone(t, 1, o)
			l.m.keys[1] = written
			l.m.recv(written)
			for i := range written {
				written[i] = 0xee
			}
			return l
		}
		// holds checks that the memory has the n bytes of the packet with PSN 0, if it was accepted,
		// and is unchanged after them.
		holds := func(t *testing.T, accepted bool) {
			t.Helper()
			at := 0
			if accepted {
				at = n
				if !bytes.Equal(written[:n], pattern(n, 0)) {
					t.Error("the accepted packet is not in memory")
				}
			}
			if len(bytes.Trim(written[at:], "\xee")) > 0 {
				t.Errorf("memory was changed from byte %d on", at)
			}
		}
		for _, v := range []struct {
			name    string
			packets [][]byte // of which the last one is too long
		}{
			{"WRITE only", [][]byte{pkt(wire.WriteOnly, 0, true, long, reth(1, 0, long))}},
			{"WRITE first", [][]byte{pkt(wire.WriteFirst, 0, true, long, reth(1, 0, 4*n))}},
			{"WRITE middle", [][]byte{first(), pkt(wire.WriteMiddle, 1, true, long)}},
			{"WRITE last", [][]byte{first(), pkt(wire.WriteLast, 1, true, long)}},
			{"SEND only", [][]byte{pkt(wire.SendOnly, 0, true, long)}},
			{"SEND first", [][]byte{pkt(wire.SendFirst, 0, true, long)}},
			{"SEND middle", [][]byte{sendFirst(), pkt(wire.SendMiddle, 1, true, long)}},
			{"SEND last", [][]byte{sendFirst(), pkt(wire.SendLast, 1, true, long)}},
		} {
			for _, selective := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%s/selective=%t", n, v.name, selective), func(t *testing.T) {
					o := o
					o.selective = selective
					l := responder(t, o)
					before := len(v.packets) - 1
					early := uint64(0)
					if before > 0 && selective { // the long packet is kept until the first one has arrived
						early = 1
						l.arrive(v.packets[1])
						l.arrive(v.packets[0])
					} else {
						l.arrive(v.packets...)
					}
					l.expect(l.sent(), fmt.Sprintf("Acknowledge %d NAK 1", before))
					l.m.failedWith(Failure{Status: rdma.StatusRemInvReqErr, NAK: NAKInvalidRequest})
					if c := l.port[1].Counters(); c.ErrorNAKsSent != 1 || c.EarlyPackets != early {
						t.Errorf("%d NAKs and %d early packets are counted", c.ErrorNAKsSent, c.EarlyPackets)
					}
					holds(t, before > 0)
				})
			}
		}
		t.Run(fmt.Sprintf("%d/longer than any packet", n), func(t *testing.T) {
			l := responder(t, o)
			b := pkt(wire.WriteMiddle, 1, true, largest-wire.BTHLen) // and the CRC
			l.expect(l.give(first(), b), "")
			if c := l.port[1].Counters(); c.Malformed != 1 || l.q.State() != rdma.StateRTS || l.q.resp.psn != 1 {
				t.Errorf("%d malformed packets, state %v, PSN %d is next", c.Malformed, l.q.State(), l.q.resp.psn)
			}
			holds(t, true)
		})
		t.Run(fmt.Sprintf("%d/unreliable connection", n), func(t *testing.T) {
			o := o
			o.typ = rdma.UC
			l := responder(t, o)
			l.expect(l.give(pkt(wire.WriteFirst.With(wire.ServiceUC), 0, false, n, reth(1, 0, 4*n)), pkt(wire.WriteMiddle.With(wire.ServiceUC), 1, false, long)), "")
			if c := l.port[1].Counters(); c.DroppedMessages != 1 {
				t.Errorf("%d messages are counted as dropped", c.DroppedMessages)
			}
			holds(t, true)
		})
		t.Run(fmt.Sprintf("%d/READ response", n), func(t *testing.T) {
			for i := range written {
				written[i] = 0xee
			}
			l := alone(t, 0, o)
			l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: written}, Length: uint32(len(written)), RKey: 1})
			l.sent()
			l.give(pkt(wire.ReadResponseFirst, 0, false, n, aeth(wire.ACKNoCredits)), pkt(wire.ReadResponseMiddle, 1, false, long))
			l.m.statuses(rdma.StatusBadRespErr)
			holds(t, true)
		})
		t.Run(fmt.Sprintf("%d/as long as agreed", n), func(t *testing.T) {
			l := responder(t, o)
			l.expect(l.give(pkt(wire.WriteOnly, 0, true, n, reth(1, 0, n))), "Acknowledge 0 msn 1")
			holds(t, true)
		})
	}
}
