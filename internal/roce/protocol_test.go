package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// A single is one end of a pair. The test plays the other end: it builds packets and
// checks the responses.
type single struct {
	*pair
	t  *testing.T
	q  *QP
	m  *memory
	at int
}

// alone returns side i of a new pair.
func alone(t *testing.T, i int, o pairOptions) *single {
	p := newPair(t, o)
	p.qp[1-i].Close()
	return &single{pair: p, t: t, q: p.qp[i], m: p.mem[i], at: i}
}

// give delivers packets as one train, and returns a description of the
// responses.
func (l *single) give(packets ...[]byte) string {
	l.arrive(packets...)
	return l.sent()
}

// arrive delivers packets as one train.
func (l *single) arrive(packets ...[]byte) {
	l.clock += 1000
	for _, b := range packets {
		l.q.address(b)
	}
	for _, b := range packets {
		l.deliver(l.at, b, 0)
	}
}

// sent returns a description of the packets that the QP sends now.
func (l *single) sent() string {
	var words []string
	for _, b := range l.drain(l.at) {
		words = append(words, l.words(b))
	}
	return strings.Join(words, "; ")
}

// words describes a packet.
func (l *single) words(b []byte) string {
	var k packet
	if !k.parse(b) {
		l.t.Errorf("malformed packet sent: %x", b)
		return "?"
	}
	if id, ok := l.q.flow.Front(len(b)).Check(b); !ok {
		l.t.Errorf("packet with a bad CRC sent, %v %v: %x", id, ok, b)
	}
	if k.PKey != 0xffff || !k.MigReq || k.DestQP != l.q.recv.DestQPN || k.Pad != uint8(pads(len(k.payload))) {
		l.t.Errorf("bad BTH sent: %+v", k.BTH)
	}
	s := fmt.Sprintf("%v %d", k.Opcode, k.PSN)
	if k.AckReq {
		s += " A"
	}
	if k.Solicited {
		s += " S"
	}
	if k.layout&wire.HasAETH != 0 {
		h := wire.ParseAETH(k.ext)
		switch {
		case h.Syndrome == wire.ACKNoCredits:
			s += fmt.Sprintf(" msn %d", h.MSN)
		case h.Syndrome.Kind() == wire.KindRNR:
			s += fmt.Sprintf(" RNR %d", h.Syndrome.Value())
		default:
			s += fmt.Sprintf(" NAK %d", h.Syndrome.Value())
		}
	}
	if k.layout&wire.HasAtomicAckETH != 0 {
		s += fmt.Sprintf(" orig %d", binary.BigEndian.Uint64(k.ext[wire.AETHLen:]))
	}
	if k.layout&wire.HasRETH != 0 {
		h := wire.ParseRETH(k.ext)
		s += fmt.Sprintf(" va %d key %d len %d", h.VA, h.RKey, h.Length)
	}
	if k.layout&wire.HasPayload != 0 {
		s += fmt.Sprintf(" %d bytes", len(k.payload))
	}
	return s
}

// header returns a header of n bytes that put writes.
func header[H any](n int, put func([]byte, *H), h H) []byte {
	b := make([]byte, n)
	put(b, &h)
	return b
}

func bth(h wire.BTH) []byte { return header(wire.BTHLen, wire.PutBTH, h) }

// pkt builds a packet with n bytes of payload. ext holds the headers after the first.
func pkt(op wire.Opcode, psn uint32, ack bool, n int, ext ...[]byte) []byte {
	b := bth(wire.BTH{Opcode: op, MigReq: true, Pad: uint8(pads(n)), PKey: 0xffff, PSN: psn & psnMask, AckReq: ack})
	for _, e := range ext {
		b = append(b, e...)
	}
	b = append(b, pattern(n, uint64(psn))...)
	return append(b, make([]byte, pads(n)+wire.ICRCLen)...)
}

func reth[N int | uint32](rkey uint32, va uint64, n N) []byte {
	return header(wire.RETHLen, wire.PutRETH, wire.RETH{RKey: rkey, VA: va, Length: uint32(n)})
}

func atomicETH(rkey uint32, va, swapAdd, compare uint64) []byte {
	return header(wire.AtomicETHLen, wire.PutAtomicETH, wire.AtomicETH{RKey: rkey, VA: va, SwapAdd: swapAdd, Compare: compare})
}

func maskETH(size uint8, swap, compare uint64) []byte {
	return header(wire.MaskETHLen, wire.PutMaskETH, wire.MaskETH{Size: size, Swap: swap, Compare: compare})
}

func aeth(s wire.Syndrome) []byte { return header(wire.AETHLen, wire.PutAETH, wire.AETH{Syndrome: s}) }

func imm(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// ack builds an acknowledgement.
func ack(psn uint32) []byte {
	return pkt(wire.Acknowledge, psn, false, 0, aeth(wire.ACKNoCredits))
}

func (l *single) expect(got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("sent   %s\nwanted %s", got, want)
	}
}

// TestResponder checks the responder's behaviour rule by rule.
func TestResponder(t *testing.T) {
	const mtu = 256
	responder := func(t *testing.T) *single {
		l := alone(t, 1, pairOptions{mtu: mtu, psn: [2]uint32{0xfffffe, 0}, rdAtomic: 2})
		l.m.keys[1] = pattern(4096, 1)
		return l
	}
	t.Run("acknowledges once for a batch, and only if asked", func(t *testing.T) {
		l := responder(t)
		l.expect(l.give(pkt(wire.WriteOnly, 0xfffffe, false, 4, reth(1, 0, 4))), "")
		l.expect(l.give(
			pkt(wire.WriteOnly, 0xffffff, true, 4, reth(1, 0, 4)),
			pkt(wire.WriteOnly, 0, true, 4, reth(1, 0, 4)),
			pkt(wire.WriteFirst, 1, true, mtu, reth(1, 0, 2*mtu)),
			pkt(wire.WriteLast, 2, false, mtu),
		), "Acknowledge 2 msn 4")
	})
	t.Run("tells of a gap once, then goes on", func(t *testing.T) {
		l := responder(t)
		w := func(psn uint32) []byte { return pkt(wire.WriteOnly, psn, true, 4, reth(1, 0, 4)) }
		l.expect(l.give(w(0)), "Acknowledge 16777214 NAK 0")
		l.expect(l.give(w(1), w(2)), "")
		l.expect(l.give(w(0xfffffe)), "Acknowledge 16777214 msn 1")
		l.expect(l.give(w(0xffffff), w(1), w(2)), "Acknowledge 0 NAK 0")
		// The peer goes back, and the same packet is lost again.
		l.clock += int64(2e6)
		l.expect(l.give(w(1)), "Acknowledge 0 NAK 0")
		l.expect(l.give(w(2)), "")
	})
	t.Run("acknowledges repeated packets again", func(t *testing.T) {
		l := responder(t)
		w := func(psn uint32) []byte { return pkt(wire.WriteOnly, psn, true, 4, reth(1, 0, 4)) }
		l.expect(l.give(w(0xfffffe), w(0xffffff), w(0)), "Acknowledge 0 msn 3")
		l.m.keys[1][0] = 99
		l.expect(l.give(w(0xffffff)), "Acknowledge 0 msn 3")
		if l.m.keys[1][0] != 99 {
			t.Error("a repeated WRITE was written")
		}
	})
	t.Run("answers READs in order, and repeats them from any packet", func(t *testing.T) {
		l := responder(t)
		l.expect(l.give(
			pkt(wire.WriteOnly, 0xfffffe, true, 4, reth(1, 0, 4)),
			pkt(wire.ReadRequest, 0xffffff, false, 0, reth(1, 16, 2*mtu+5)),
			pkt(wire.WriteOnly, 2, true, 4, reth(1, 0, 4)),
			pkt(wire.ReadRequest, 3, false, 0, reth(7, 0, 0)),
			pkt(wire.WriteOnly, 4, true, 4, reth(1, 0, 4)),
		), "RDMA READ Response First 16777215 msn 5 256 bytes; RDMA READ Response Middle 0 256 bytes; "+
			"RDMA READ Response Last 1 msn 5 5 bytes; RDMA READ Response Only 3 msn 5 0 bytes; Acknowledge 4 msn 5")
		l.expect(l.give(pkt(wire.ReadRequest, 0, false, 0, reth(1, 16+mtu, mtu+5))),
			"RDMA READ Response First 0 msn 5 256 bytes; RDMA READ Response Last 1 msn 5 5 bytes")
		l.expect(l.give(pkt(wire.ReadRequest, 0, false, 0, reth(1, 16+mtu, mtu))),
			"RDMA READ Response Only 0 msn 5 256 bytes")
		l.expect(l.give(pkt(wire.ReadRequest, 3, false, 0, reth(7, 0, 0))), "RDMA READ Response Only 3 msn 5 0 bytes")
		// The repeated request differs from the original: no response.
		for _, r := range [][]byte{reth(1, 16, mtu), reth(2, 16+mtu, mtu), reth(1, 16+mtu, mtu+6)} {
			l.expect(l.give(pkt(wire.ReadRequest, 0, false, 0, r)), "")
		}
		if l.m.open != 0 {
			t.Errorf("%d Sources left open", l.m.open)
		}
	})
	t.Run("carries an atomic out once and repeats its result", func(t *testing.T) {
		l := responder(t)
		binary.NativeEndian.PutUint64(l.m.keys[1], 40)
		add := func() []byte { return pkt(wire.FetchAdd, 0xfffffe, false, 0, atomicETH(1, 0, 2, 0)) }
		swap := func() []byte { return pkt(wire.CompareSwap, 0xffffff, false, 0, atomicETH(1, 0, 7, 42)) }
		l.expect(l.give(add(), swap()), "Atomic Acknowledge 16777214 msn 2 orig 40; Atomic Acknowledge 16777215 msn 2 orig 42")
		l.expect(l.give(add(), swap()), "Atomic Acknowledge 16777214 msn 2 orig 40; Atomic Acknowledge 16777215 msn 2 orig 42")
		l.expect(l.give(swap()), "Atomic Acknowledge 16777215 msn 2 orig 42")
		l.expect(l.give(pkt(wire.FetchAdd, 0xffffff, false, 0, atomicETH(1, 0, 2, 0))), "")
		if got := binary.NativeEndian.Uint64(l.m.keys[1]); got != 7 || l.m.atomics != 2 {
			t.Errorf("%d atomics, memory %d", l.m.atomics, got)
		}
		// The ring holds two entries; the third replaces the first.
		l.expect(l.give(pkt(wire.FetchAdd, 0, false, 0, atomicETH(1, 0, 1, 0))), "Atomic Acknowledge 0 msn 3 orig 7")
		l.expect(l.give(add()), "")
	})
	t.Run("carries a masked atomic out once and repeats its result", func(t *testing.T) {
		l := responder(t)
		binary.NativeEndian.PutUint64(l.m.keys[1], 0x0102030405060708)
		binary.NativeEndian.PutUint32(l.m.keys[1][12:], 16909061)
		// Two fields of 4 bytes: the carry of the lower one is lost.
		add := func() []byte {
			return pkt(wire.MaskedFetchAdd, 0xfffffe, false, 0, atomicETH(1, 0, 0x1fbfafa00, 0), maskETH(8, 0, 1<<31))
		}
		swap := func() []byte {
			return pkt(wire.MaskedCompareSwap, 0xffffff, false, 0, atomicETH(1, 12, 0xff00ff, 0x5), maskETH(4, 0xf0f0f0f0, 0xf))
		}
		const answers = "Atomic Acknowledge 16777214 msn 2 orig 72623859790382856; Atomic Acknowledge 16777215 msn 2 orig 16909061"
		l.expect(l.give(add(), swap()), answers)
		l.expect(l.give(add(), swap()), answers)
		word, small := binary.NativeEndian.Uint64(l.m.keys[1]), binary.NativeEndian.Uint32(l.m.keys[1][12:])
		if l.m.atomics != 2 || word != 0x0102030501010108 || small != 0x01f203f5 {
			t.Errorf("%d atomics, memory %#x and %#x", l.m.atomics, word, small)
		}
	})
	t.Run("sends responses before a NAK behind them", func(t *testing.T) {
		l := responder(t)
		l.expect(l.give(
			pkt(wire.ReadRequest, 0xfffffe, false, 0, reth(1, 0, mtu)),
			pkt(wire.WriteOnly, 0xffffff, true, 4, reth(1, 9999, 4)),
			pkt(wire.WriteOnly, 0, true, 4, reth(1, 0, 4)),
		), "RDMA READ Response Only 16777214 msn 1 256 bytes; Acknowledge 16777215 NAK 2")
		if l.q.State() != rdma.StateErr {
			t.Errorf("state %v", l.q.State())
		}
		l.expect(l.give(pkt(wire.WriteOnly, 0xffffff, true, 4, reth(1, 0, 4))), "")
	})
	t.Run("asks to wait, and takes what comes then", func(t *testing.T) {
		l := responder(t)
		l.expect(l.give(pkt(wire.SendFirst, 0xfffffe, false, mtu), pkt(wire.SendLast, 0xffffff, true, 3)), "Acknowledge 16777214 RNR 12")
		l.m.recv(make([]byte, 1000))
		l.expect(l.give(pkt(wire.SendFirst, 0xfffffe, false, mtu), pkt(wire.SendLastImm, 0xffffff, true, 3, imm(5))), "Acknowledge 16777215 msn 1")
		l.m.recv(nil)
		l.expect(l.give(pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, mtu+1))), "")
		l.m.rq = nil
		l.expect(l.give(pkt(wire.WriteLastImm, 1, true, 1, imm(6))), "Acknowledge 1 RNR 12")
		l.m.recv(nil)
		l.expect(l.give(pkt(wire.WriteLastImm, 1, true, 1, imm(6))), "Acknowledge 1 msn 2")
		if len(l.m.got) != 2 || l.m.got[1].ev != (RecvEvent{Op: ibv.WRWriteImm, Length: mtu + 1, HasImm: true, Imm: 6, PSN: 1}) {
			t.Errorf("received %+v", l.m.got)
		}
	})
	t.Run("marks only what asks for it as solicited", func(t *testing.T) {
		l := responder(t)
		for i := range 2 {
			l.m.recv(make([]byte, 10))
			b := pkt(wire.SendOnly, 0xfffffe+uint32(i), false, 3)
			b[1] |= byte(i) << 7
			l.give(b)
			if l.m.got[i].ev.Solicited != (i == 1) {
				t.Errorf("message %d: %+v", i, l.m.got[i].ev)
			}
		}
	})
}

// TestInvalidRequests sends sequences of requests that the specification forbids.
func TestInvalidRequests(t *testing.T) {
	const mtu = 256
	first := func() []byte { return pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)) }
	sendFirst := func() []byte { return pkt(wire.SendFirst, 0, false, mtu) }
	for _, v := range []struct {
		name    string
		packets [][]byte
		rd      int
		nakPSN  uint32
	}{
		{name: "middle of a SEND without a first", packets: [][]byte{pkt(wire.SendMiddle, 0, true, mtu)}},
		{name: "last of a SEND without a first", packets: [][]byte{pkt(wire.SendLast, 0, true, 4)}},
		{name: "middle of a WRITE without a first", packets: [][]byte{pkt(wire.WriteMiddle, 0, true, mtu)}},
		{name: "last of a WRITE without a first", packets: [][]byte{pkt(wire.WriteLastImm, 0, true, 4, imm(1))}},
		{name: "SEND first twice", packets: [][]byte{sendFirst(), pkt(wire.SendFirst, 1, true, mtu)}, nakPSN: 1},
		{name: "SEND only inside a SEND", packets: [][]byte{sendFirst(), pkt(wire.SendOnly, 1, true, 4)}, nakPSN: 1},
		{name: "WRITE inside a SEND", packets: [][]byte{sendFirst(), pkt(wire.WriteLast, 1, true, 4)}, nakPSN: 1},
		{name: "SEND inside a WRITE", packets: [][]byte{first(), pkt(wire.SendLast, 1, true, 4)}, nakPSN: 1},
		{name: "READ inside a WRITE", packets: [][]byte{first(), pkt(wire.ReadRequest, 1, true, 0, reth(1, 0, 4))}, nakPSN: 1},
		{name: "atomic inside a SEND", packets: [][]byte{sendFirst(), pkt(wire.FetchAdd, 1, true, 0, atomicETH(1, 0, 1, 1))}, nakPSN: 1},
		{name: "first not as long as the MTU", packets: [][]byte{pkt(wire.SendFirst, 0, true, mtu-1)}},
		{name: "first longer than the MTU", packets: [][]byte{pkt(wire.SendFirst, 0, true, mtu+4)}},
		{name: "middle not as long as the MTU", packets: [][]byte{sendFirst(), pkt(wire.SendMiddle, 1, true, mtu-4)}, nakPSN: 1},
		{name: "last without a byte", packets: [][]byte{sendFirst(), pkt(wire.SendLast, 1, true, 0)}, nakPSN: 1},
		{name: "last longer than the MTU", packets: [][]byte{sendFirst(), pkt(wire.SendLast, 1, true, mtu+1)}, nakPSN: 1},
		{name: "only longer than the MTU", packets: [][]byte{pkt(wire.SendOnly, 0, true, mtu+1)}},
		{name: "WRITE only with another length", packets: [][]byte{pkt(wire.WriteOnly, 0, true, 4, reth(1, 0, 5))}},
		{name: "WRITE first of a message that fits", packets: [][]byte{pkt(wire.WriteFirst, 0, true, mtu, reth(1, 0, mtu))}},
		{name: "WRITE longer than it said", packets: [][]byte{first(), pkt(wire.WriteMiddle, 1, false, mtu), pkt(wire.WriteMiddle, 2, true, mtu)}, nakPSN: 2},
		{name: "WRITE shorter than it said", packets: [][]byte{first(), pkt(wire.WriteLast, 1, true, mtu)}, nakPSN: 1},
		{name: "WRITE that is too long", packets: [][]byte{pkt(wire.WriteFirst, 0, true, mtu, reth(1, 0, uint32(MaxMessage+1)))}},
		{name: "READ that is too long", packets: [][]byte{pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, uint32(MaxMessage+1)))}},
		{name: "READ where none is allowed", rd: -1, packets: [][]byte{pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, 4))}},
		{name: "atomic where none is allowed", rd: -1, packets: [][]byte{pkt(wire.FetchAdd, 0, true, 0, atomicETH(1, 0, 1, 1))}},
		{name: "masked atomic of 2 bytes", packets: [][]byte{pkt(wire.MaskedFetchAdd, 0, true, 0, atomicETH(1, 0, 1, 1), maskETH(2, 0, 0))}},
		{name: "masked atomic of 8 bytes on a multiple of 4", packets: [][]byte{pkt(wire.MaskedCompareSwap, 0, true, 0, atomicETH(1, 4, 1, 1), maskETH(8, 0, 0))}},
		{name: "atomic not aligned", packets: [][]byte{pkt(wire.FetchAdd, 0, true, 0, atomicETH(1, 1, 1, 1))}},
	} {
		t.Run(v.name, func(t *testing.T) {
			l := alone(t, 1, pairOptions{mtu: mtu, rdAtomic: v.rd})
			l.m.keys[1] = make([]byte, 4096)
			l.m.recv(make([]byte, 4096))
			l.expect(l.give(v.packets...), fmt.Sprintf("Acknowledge %d NAK 1", v.nakPSN))
			l.m.failedWith(Failure{Status: rdma.StatusRemInvReqErr, NAK: NAKInvalidRequest})
			if l.m.open != 0 || l.q.State() != rdma.StateErr {
				t.Errorf("%d open, state %v", l.m.open, l.q.State())
			}
		})
	}
	t.Run("more READs than allowed", func(t *testing.T) {
		l := alone(t, 1, pairOptions{mtu: mtu, rdAtomic: 2})
		l.m.keys[1] = make([]byte, 4096)
		r := func(psn uint32) []byte { return pkt(wire.ReadRequest, psn, true, 0, reth(1, 0, 4)) }
		l.expect(l.give(r(0), r(1), r(2)), "RDMA READ Response Only 0 msn 2 4 bytes; RDMA READ Response Only 1 msn 2 4 bytes; Acknowledge 2 NAK 1")
	})
}

// TestRequester checks the requester's behaviour rule by rule.
func TestRequester(t *testing.T) {
	const mtu = 256
	data := pattern(16*mtu, 5)
	requester := func(t *testing.T, o pairOptions) *single {
		o.mtu = mtu
		o.psn = [2]uint32{0xfffffe, 0}
		return alone(t, 0, o)
	}
	write := func(n int) *Work { return &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: uint32(n), RKey: 1} }
	read := func(n int) *Work {
		return &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, n)}, Length: uint32(n), RKey: 1, RemoteAddr: 8}
	}
	t.Run("asks for an acknowledgement at each message's end", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5), write(2*mtu+1), &Work{Op: ibv.WRSendImm, Src: &source{b: data}, Length: 7, Imm: 3, Solicited: true})
		l.expect(l.sent(), "RDMA WRITE Only 16777214 A va 0 key 1 len 5 5 bytes; "+
			"RDMA WRITE First 16777215 va 0 key 1 len 513 256 bytes; RDMA WRITE Middle 0 256 bytes; RDMA WRITE Last 1 A 1 bytes; "+
			"SEND Only with Immediate 2 A S 7 bytes")
		l.expect(l.give(ack(0)), "")
		l.m.statuses(rdma.StatusSuccess)
		l.expect(l.give(ack(2)), "")
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
	})
	t.Run("asks for some in every window, and before it is full", func(t *testing.T) {
		l := requester(t, pairOptions{window: congestion.Least})
		l.q.peer.out.limit.Store(4 * (mtu + congestion.PacketCost))
		l.post(0, write(16*mtu))
		l.expect(l.sent(), "RDMA WRITE First 16777214 va 0 key 1 len 4096 256 bytes; RDMA WRITE Middle 16777215 A 256 bytes; "+
			"RDMA WRITE Middle 0 256 bytes; RDMA WRITE Middle 1 A 256 bytes")
		// The window grows by the bytes that arrived.
		got := l.give(ack(1))
		if n := strings.Count(got, "Middle"); n < 4 || strings.Count(got, " A ") < 2 {
			t.Errorf("sent %s", got)
		}
	})
	t.Run("goes back where a NAK says", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(4*mtu))
		l.sent()
		l.expect(l.give(pkt(wire.Acknowledge, 0, false, 0, aeth(wire.NAKSequence))), "RDMA WRITE Middle 0 256 bytes; RDMA WRITE Last 1 A 256 bytes")
		// Packets that were in flight report the same loss again.
		l.expect(l.give(pkt(wire.Acknowledge, 0, false, 0, aeth(wire.NAKSequence))), "")
		l.expect(l.give(ack(1)), "")
		l.m.statuses(rdma.StatusSuccess)
		if c := l.port[0].Counters(); c.Retransmitted != 2 || c.Losses != 1 || c.SequenceNAKsReceived != 2 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("goes back when an answer to a later request shows that a response was lost", func(t *testing.T) {
		for _, syndrome := range []wire.Syndrome{wire.RNR(1), wire.NAKRemoteAccess} {
			l := requester(t, pairOptions{})
			l.post(0, read(10), &Work{Op: ibv.WRSend, Src: &source{b: data}, Length: 5})
			l.sent()
			l.expect(l.give(pkt(wire.Acknowledge, 0xffffff, false, 0, aeth(syndrome))), "RDMA READ Request 16777214 A va 8 key 1 len 10; SEND Only 16777215 A 5 bytes")
			l.m.statuses()
		}
	})
	t.Run("ignores answers to nothing", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.expect(l.give(ack(0xfffffe), ack(0xfffffd), ack(5)), "")
		l.post(0, write(5))
		l.sent()
		l.expect(l.give(ack(0xfffffd), ack(0xffffff), ack(0x7ffffe)), "")
		l.expect(l.give(pkt(wire.Acknowledge, 0xffffff, false, 0, aeth(wire.NAKRemoteAccess))), "")
		if n := l.port[0].Counters().StaleResponses; n != 7 {
			t.Errorf("%d stale responses", n)
		}
		l.m.statuses()
		l.expect(l.give(ack(0xfffffe)), "")
		l.m.statuses(rdma.StatusSuccess)
	})
	t.Run("takes a READ's response for an acknowledgement of what is before it", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5), write(5), read(10), write(5))
		l.sent()
		l.expect(l.give(pkt(wire.ReadResponseOnly, 0, false, 10, aeth(wire.ACKNoCredits))), "")
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
		l.expect(l.give(ack(1)), "")
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
	})
	t.Run("asks for a READ again from where it broke", func(t *testing.T) {
		l := requester(t, pairOptions{})
		r := read(7*mtu + 1)
		l.post(0, r)
		l.expect(l.sent(), "RDMA READ Request 16777214 A va 8 key 1 len 1793")
		l.expect(l.give(pkt(wire.ReadResponseFirst, 0xfffffe, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseMiddle, 0, false, mtu),
			pkt(wire.ReadResponseMiddle, 1, false, mtu)), "RDMA READ Request 16777215 A va 264 key 1 len 1537")
		l.expect(l.give(pkt(wire.ReadResponseMiddle, 3, false, mtu), pkt(wire.ReadResponseLast, 5, false, 1, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseFirst, 0xffffff, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseMiddle, 0, false, mtu),
			pkt(wire.ReadResponseMiddle, 1, false, mtu),
			pkt(wire.ReadResponseMiddle, 2, false, mtu),
			pkt(wire.ReadResponseMiddle, 3, false, mtu),
			pkt(wire.ReadResponseMiddle, 4, false, mtu),
			pkt(wire.ReadResponseLast, 5, false, 1, aeth(wire.ACKNoCredits))), "")
		l.m.statuses(rdma.StatusSuccess)
		var want []byte
		for psn := uint32(0xfffffe); psn != 5; psn = psnAdd(psn, 1) {
			want = append(want, pattern(mtu, uint64(psn))...)
		}
		if got := r.Dst.(*sink).b; !bytes.Equal(got, append(want, pattern(1, 5)...)) {
			t.Error("data differ")
		}
	})
	parts := func(t *testing.T) (*single, *Work) {
		l := requester(t, pairOptions{})
		l.q.peer.in.limit.Store(8 * (mtu + congestion.PacketCost))
		r := read(9*mtu + 1)
		r.RemoteAddr = lowestDivided
		l.post(0, r, write(5))
		l.expect(l.sent(), "RDMA READ Request 16777214 A va 4294967296 key 1 len 1024; RDMA READ Request 2 A va 4294968320 key 1 len 1024")
		return l, r
	}
	t.Run("sends one request for a READ from where keys with blocks are", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.q.peer.in.limit.Store(8 * (mtu + congestion.PacketCost))
		r := read(9*mtu + 1)
		r.RemoteAddr = lowestDivided - 1
		l.post(0, r)
		l.expect(l.sent(), "RDMA READ Request 16777214 A va 4294967295 key 1 len 2305")
	})
	t.Run("asks for a long READ in parts", func(t *testing.T) {
		l, r := parts(t)
		l.expect(l.give(pkt(wire.ReadResponseFirst, 0xfffffe, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseMiddle, 0xffffff, false, mtu),
			pkt(wire.ReadResponseMiddle, 0, false, mtu),
			pkt(wire.ReadResponseLast, 1, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseFirst, 2, false, mtu, aeth(wire.ACKNoCredits))),
			"RDMA READ Request 6 A va 4294969344 key 1 len 257; RDMA WRITE Only 8 A va 0 key 1 len 5 5 bytes")
		l.m.statuses()
		// The rest of the part with a lost response is asked for again, and what follows it.
		l.expect(l.give(pkt(wire.ReadResponseMiddle, 4, false, mtu)),
			"RDMA READ Request 3 A va 4294968576 key 1 len 768; RDMA READ Request 6 A va 4294969344 key 1 len 257; RDMA WRITE Only 8 A va 0 key 1 len 5 5 bytes")
		l.expect(l.give(pkt(wire.ReadResponseFirst, 3, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseMiddle, 4, false, mtu), pkt(wire.ReadResponseLast, 5, false, mtu, aeth(wire.ACKNoCredits))), "")
		l.m.statuses()
		l.expect(l.give(pkt(wire.ReadResponseFirst, 6, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.ReadResponseLast, 7, false, 1, aeth(wire.ACKNoCredits)), ack(8)), "")
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess)
		if first, count, again := r.PSNs(); first != 0xfffffe || count != 10 || again != 5 {
			t.Errorf("PSNs %#x, %d, %d", first, count, again)
		}
	})
	t.Run("completes a READ in parts once if a part fails", func(t *testing.T) {
		l, _ := parts(t)
		l.give(pkt(wire.Acknowledge, 0xfffffe, false, 0, aeth(wire.NAKRemoteAccess)))
		l.m.statuses(rdma.StatusRemAccessErr)
		l.idle()
	})
	t.Run("flushes a READ in parts once", func(t *testing.T) {
		l, _ := parts(t)
		l.q.Fail()
		l.m.statuses(rdma.StatusWRFlushErr)
		l.idle()
	})
	t.Run("goes back to a part whose request was lost", func(t *testing.T) {
		l, _ := parts(t)
		l.expect(l.give(pkt(wire.ReadResponseFirst, 0xfffffe, false, mtu, aeth(wire.ACKNoCredits)),
			pkt(wire.Acknowledge, 2, false, 0, aeth(wire.NAKSequence))),
			"RDMA READ Request 16777215 A va 4294967552 key 1 len 768; RDMA READ Request 2 A va 4294968320 key 1 len 1024; "+
				"RDMA READ Request 6 A va 4294969344 key 1 len 257; RDMA WRITE Only 8 A va 0 key 1 len 5 5 bytes")
	})
	t.Run("takes an acknowledgement of what follows a READ for its loss", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5), read(10), write(5))
		l.sent()
		l.expect(l.give(ack(0)), "RDMA READ Request 16777215 A va 8 key 1 len 10; RDMA WRITE Only 0 A va 0 key 1 len 5 5 bytes")
		l.m.statuses(rdma.StatusSuccess)
		l.expect(l.give(pkt(wire.ReadResponseOnly, 0xffffff, false, 10, aeth(wire.ACKNoCredits)), ack(0)), "")
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
		if c := l.port[0].Counters(); c.Losses != 1 || c.ImpliedNAKs != 1 {
			t.Errorf("%d losses, %d implied NAKs", c.Losses, c.ImpliedNAKs)
		}
	})
	t.Run("keeps to the number of READs and atomics", func(t *testing.T) {
		l := requester(t, pairOptions{rdAtomic: 2})
		add := &Work{Op: ibv.WRFetchAdd, RKey: 1, CompareAdd: 1}
		l.post(0, read(1), add, read(2), write(1))
		l.expect(l.sent(), "RDMA READ Request 16777214 A va 8 key 1 len 1; FetchAdd 16777215 A")
		l.expect(l.give(pkt(wire.ReadResponseOnly, 0xfffffe, false, 1, aeth(wire.ACKNoCredits))),
			"RDMA READ Request 0 A va 8 key 1 len 2; RDMA WRITE Only 1 A va 0 key 1 len 1 1 bytes")
		l.expect(l.give(pkt(wire.AtomicAcknowledge, 0xffffff, false, 0, aeth(wire.ACKNoCredits), binary.BigEndian.AppendUint64(nil, 77))), "")
		if add.Orig != 77 {
			t.Errorf("result %d", add.Orig)
		}
	})
	for name, bad := range map[string][]byte{
		"READ response of another length": pkt(wire.ReadResponseOnly, 0xfffffe, false, 9, aeth(wire.ACKNoCredits)),
		"READ response with a NAK":        pkt(wire.ReadResponseOnly, 0xfffffe, false, 10, aeth(wire.NAKRemoteAccess)),
		"atomic response to a READ":       pkt(wire.AtomicAcknowledge, 0xfffffe, false, 0, aeth(wire.ACKNoCredits), make([]byte, 8)),
	} {
		t.Run("fails at a "+name, func(t *testing.T) {
			l := requester(t, pairOptions{})
			l.post(0, read(10), write(5))
			l.sent()
			l.expect(l.give(bad), "")
			l.m.statuses(rdma.StatusBadRespErr, rdma.StatusWRFlushErr)
			l.m.failedWith(Failure{Status: rdma.StatusBadRespErr})
		})
	}
	t.Run("fails at a READ response to a WRITE", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5), read(1))
		l.sent()
		l.give(pkt(wire.ReadResponseOnly, 0xfffffe, false, 1, aeth(wire.ACKNoCredits)))
		l.m.statuses(rdma.StatusBadRespErr, rdma.StatusWRFlushErr)
	})
	t.Run("ignores syndromes that are reserved", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5))
		l.sent()
		for _, s := range []wire.Syndrome{0x40, 0x65, 0x80, 0xff, wire.NAKInvalidRDRequest} {
			l.expect(l.give(pkt(wire.Acknowledge, 0xfffffe, false, 0, aeth(s))), "")
		}
		l.m.statuses()
		// An ACK may carry any credit count.
		l.expect(l.give(pkt(wire.Acknowledge, 0xfffffe, false, 0, aeth(wire.KindACK|5))), "")
		l.m.statuses(rdma.StatusSuccess)
	})
	t.Run("waits as long as RNR says", func(t *testing.T) {
		l := requester(t, pairOptions{})
		l.post(0, write(5), &Work{Op: ibv.WRSend, Src: &source{b: data}, Length: 5}, write(5))
		l.sent()
		rnr := func() []byte { return pkt(wire.Acknowledge, 0xffffff, false, 0, aeth(wire.RNR(14))) }
		l.expect(l.give(rnr()), "")
		l.m.statuses(rdma.StatusSuccess)
		l.post(0)
		l.expect(l.sent(), "")
		l.expect(l.give(rnr()), "")
		l.clock += int64(RNRTimer(14)) - 3000
		l.port[0].expire(l.clock)
		l.expect(l.sent(), "")
		l.clock += 3000
		l.port[0].expire(l.clock)
		l.expect(l.sent(), "SEND Only 16777215 A 5 bytes; RDMA WRITE Only 0 A va 0 key 1 len 5 5 bytes")
		if n := l.port[0].Counters().RNRReceived; n != 2 {
			t.Errorf("%d RNR NAKs received, want 2", n)
		}
	})
}
