package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// fuzzOps are the opcodes that a script can select: all of the service, and some invalid
// ones.
var fuzzOps = []wire.Opcode{
	wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendLastImm, wire.SendOnly, wire.SendOnlyImm, wire.SendLastInv, wire.SendOnlyInv,
	wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteLastImm, wire.WriteOnly, wire.WriteOnlyImm,
	wire.ReadRequest, wire.CompareSwap, wire.FetchAdd, wire.MaskedCompareSwap, wire.MaskedFetchAdd,
	wire.ReadResponseFirst, wire.ReadResponseMiddle, wire.ReadResponseLast, wire.ReadResponseOnly, wire.Acknowledge, wire.AtomicAcknowledge,
	wire.CongestionNotification, wire.UDSendOnly, 0x15, 0xff,
}

// script turns the fuzzer's bytes into well-formed packets with unexpected contents and a
// valid CRC, and delivers them. Each packet takes 8 bytes: opcode, PSN relative to the
// expected one, length, flags, key, address, syndrome, and a byte to change.
func script(l *single, data []byte) {
	mtu := l.q.mtu()
	for ; len(data) >= 8; data = data[8:] {
		op := fuzzOps[int(data[0])%len(fuzzOps)]
		base := l.q.resp.psn
		if op.Layout()&wire.IsResponse != 0 {
			base = l.q.req.una
		}
		psn := psnAdd(base, int(int8(data[1]))/4)
		n := []int{0, 1, 4, mtu - 1, mtu, mtu + 1, 3 * mtu, int(data[2])}[data[2]&7]
		length := []uint32{uint32(n), 0, uint32(2 * mtu), uint32(mtu), uint32(3*mtu + 1), 1 << 31, 1<<32 - 1, uint32(data[2])}[data[3]&7]
		var ext []byte
		layout := op.Layout()
		if layout&wire.HasRETH != 0 {
			ext = append(ext, reth(uint32(data[4]%3), uint64(data[5])*8, length)...)
		}
		if layout&wire.HasAtomicETH != 0 {
			ext = append(ext, atomicETH(uint32(data[4]%3), uint64(data[5]), uint64(data[6]), 0)...)
		}
		if layout&wire.HasMaskETH != 0 {
			ext = append(ext, maskETH(data[7], uint64(data[4]), uint64(data[2]))...)
		}
		if layout&wire.HasAETH != 0 {
			ext = append(ext, aeth(wire.Syndrome(data[6]))...)
		}
		if layout&wire.HasAtomicAckETH != 0 {
			ext = append(ext, make([]byte, 8)...)
		}
		if layout&(wire.HasImmDt|wire.HasIETH) != 0 {
			ext = append(ext, 0, 0, 0, data[4]%3)
		}
		if layout&wire.HasPayload == 0 && data[3]&0x10 == 0 {
			n = 0
		}
		b := pkt(op, psn, data[3]&8 != 0, n, ext)
		if data[3]&0x20 != 0 {
			b[1] ^= data[7]
		}
		if data[3]&0x40 != 0 {
			b = b[:len(b)-min(len(b), int(data[7]))]
		}
		if data[3]&0x80 != 0 {
			l.clock += int64(data[7]) << 20
			l.port[l.at].expire(l.clock)
		}
		l.clock += 1000
		if len(b) >= wire.MinPacket {
			l.q.address(b)
		}
		l.deliver(l.at, b, data[7]&3)
		l.drain(l.at)
		l.invariants()
	}
}

// invariants fails the test if the QP's state is inconsistent.
func (l *single) invariants() {
	r, s := &l.q.req, &l.q.resp
	if psnDiff(r.next, r.una) < 0 || psnDiff(r.high, r.next) < 0 || r.flight.out < 0 || r.flight.in < 0 || r.inFlight < 0 || r.inFlight > MaxRdAtomic {
		l.t.Fatalf("requester: %+v", *r)
	}
	if r.next == r.una && (r.flight.out != 0 || r.flight.in != 0 || r.inFlight != 0) {
		l.t.Fatalf("requester: nothing on its way, but %d, %d, %d", r.flight.out, r.flight.in, r.inFlight)
	}
	pending := 0
	for i := range s.ring {
		if s.ring[i].pending {
			pending++
		}
	}
	if pending != int(s.open) || l.m.open > len(s.ring)+2 {
		l.t.Fatalf("responder: %d of %d pending, %d open", pending, s.open, l.m.open)
	}
	if p := l.q.peer; p != nil && (p.out.used.Load() != r.flight.out || p.in.used.Load() != r.flight.in) {
		l.t.Fatalf("windows: %d and %d, requester: %d and %d", p.out.used.Load(), p.in.used.Load(), r.flight.out, r.flight.in)
	}
}

// FuzzQP delivers arbitrary packets to a QP that has work of its own. The length of the input chooses its path MTU.
func FuzzQP(f *testing.F) {
	for _, data := range [][]byte{
		{},
		// A WRITE of two packets, a READ, an atomic, and responses to the QP's own work.
		{8, 0, 4, 2, 1, 0, 0, 0, 10, 0, 4, 8, 1, 0, 0, 0, 14, 0, 0, 2, 1, 0, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 0, 0, 31, 0, 20, 16, 4, 0, 0, 0, 31, 0},
		{21, 0, 0, 0, 0, 0, 0x60, 0, 21, 4, 0, 0, 0, 0, 0x2c, 0, 0, 0, 4, 0, 0, 0, 0, 0, 4, 0, 1, 8, 0, 0, 0, 0, 8, 8, 4, 2, 1, 0, 0, 3},
		{27, 4, 5, 0, 1, 1, 0, 0, 28, 0, 9, 0, 1, 255, 20, 1, 20, 8, 4, 0, 0, 0, 31, 0, 14, 0, 0, 2, 1, 0, 0, 0, 28, 0, 3, 0, 1, 2, 0, 5, 8, 8, 4, 2, 1, 0, 0, 3, 7},
		{14, 0, 0, 2, 1, 0, 0, 0, 14, 0xf8, 0, 2, 1, 0, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0, 15, 0xfc, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0x80, 0, 0, 0, 0xff},
	} {
		data = data[:len(data)&^7]
		for range 2 {
			f.Add(data)
			data = append(data, 0)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8*200 {
			return
		}
		o := pairOptions{mtu: 256, rdAtomic: 3, window: 8000, retry: 2, rnr: 2, psn: [2]uint32{0xfffff8, 0xfffffd}}
		if len(data)&1 != 0 {
			o.mtu, o.window = 1024, 16000
		}
		l := alone(t, 0, o)
		n := o.mtu
		l.m.keys[1] = make([]byte, 8*n)
		for range 4 {
			l.m.recv(make([]byte, 3*n-68)) // less than three packets
		}
		for i, op := range []ibv.WROp{ibv.WRWrite, ibv.WRRead, ibv.WRSend, ibv.WRFetchAdd, ibv.WRRead, ibv.WRWriteImm, WRLocal, ibv.WRCmpSwap} {
			l.m.post(&Work{Op: op, Src: &source{b: make([]byte, 8*n)}, Dst: &sink{b: make([]byte, 8*n)}, Length: uint32(i * (n + 1))})
		}
		l.qp[0].Kick()
		script(l, data)
		l.q.Close()
		l.m.rq = nil
		if l.m.open != 0 || len(l.m.ended) != len(l.m.began) {
			t.Fatalf("%d open, %d of %d completed", l.m.open, len(l.m.ended), len(l.m.began))
		}
	})
}

// FuzzParse passes arbitrary bytes to the packet parser, with the limits of the network and of memory.
func FuzzParse(f *testing.F) {
	f.Add(pkt(wire.WriteOnlyImm, 1, true, 5, reth(1, 2, 5), imm(3)))
	f.Add(pkt(wire.AtomicAcknowledge, 1, false, 0, aeth(31), make([]byte, 8)))
	f.Add(pkt(wire.WriteMiddle, 1, false, insideMTU))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k packet
		if standard := k.parse(b); standard && len(b) > wire.MaxHeaders+largestMTU {
			t.Fatalf("a packet of %d bytes is accepted from the network", len(b))
		}
		if !k.parseUpTo(b, wire.MaxHeaders+insideMTU) {
			return
		}
		if len(b) > wire.MaxHeaders+insideMTU {
			t.Fatalf("a packet of %d bytes is accepted", len(b))
		}
		if k.head+len(k.payload)+int(k.Pad)+wire.ICRCLen != len(b) {
			t.Fatalf("%d bytes of extended headers, %d of payload, %d of padding in a packet of %d", len(k.ext), len(k.payload), k.Pad, len(b))
		}
		if k.layout&wire.HasImmDt != 0 {
			k.imm()
		}
	})
}
