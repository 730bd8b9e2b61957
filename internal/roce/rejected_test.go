package roce

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// spoiled seals packets with a valid CRC, lets spoil change them, and delivers them.
func (l *single) spoiled(b []byte, spoil func([]byte)) {
	l.q.address(b)
	spoil(b)
	l.deliver(l.at, b, 0)
}

// TestRejectedPackets checks that a rejected packet changes no memory. The only exception
// is the bytes of an open WRITE or READ that a packet of that kind, position and
// partition would have written, before the message's last packet is accepted.
func TestRejectedPackets(t *testing.T) {
	const mtu = 1024
	crc := func(b []byte) { b[len(b)-1] ^= 1 }
	pkey := func(b []byte) { b[2] ^= 1 } // the CRC is wrong as well
	version := func(b []byte) { b[1] |= 1 }
	none := func([]byte) {}
	otherPKey := func(b []byte) []byte { b[2], b[3] = 0x12, 0x34; return b }
	for _, v := range []struct {
		name   string
		open   []byte // first packet of the message, PSN 0
		bad    []byte // the rejected packet, PSN 1
		spoil  func([]byte)
		kept   int // bytes of the message that the first packet wrote
		within int // the rejected packet may write bytes from kept to here
	}{
		{"damaged middle of a SEND", pkt(wire.SendFirst, 0, false, mtu), pkt(wire.SendMiddle, 1, false, mtu), crc, mtu, mtu},
		{"damaged last of a SEND", pkt(wire.SendFirst, 0, false, mtu), pkt(wire.SendLast, 1, false, 700), crc, mtu, mtu},
		{"damaged only of a SEND", nil, pkt(wire.SendOnly, 0, false, 700), crc, 0, 0},
		{"damaged middle of a WRITE", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.WriteMiddle, 1, false, mtu), crc, mtu, 2 * mtu},
		{"damaged last of a WRITE", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 2*mtu)), pkt(wire.WriteLast, 1, false, mtu), crc, mtu, mtu},
		{"damaged last of a WRITE with immediate", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 2*mtu)), pkt(wire.WriteLastImm, 1, false, mtu, imm(1)), crc, mtu, mtu},
		{"damaged only of a WRITE", nil, pkt(wire.WriteOnly, 0, false, mtu, reth(1, 0, mtu)), crc, 0, 0},
		{"middle of a WRITE where the last belongs", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 2*mtu)), pkt(wire.WriteMiddle, 1, false, mtu), none, mtu, mtu},
		{"last of a WRITE where a middle belongs", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.WriteLast, 1, false, mtu), none, mtu, mtu},
		{"middle of a SEND within a WRITE", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.SendMiddle, 1, false, mtu), none, mtu, mtu},
		{"last of a SEND within a WRITE", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 2*mtu)), pkt(wire.SendLast, 1, false, mtu), none, mtu, mtu},
		{"middle of a WRITE within a SEND", pkt(wire.SendFirst, 0, false, mtu), pkt(wire.WriteMiddle, 1, false, mtu), none, mtu, mtu},
		{"another partition", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), otherPKey(pkt(wire.WriteMiddle, 1, false, mtu)), none, mtu, mtu},
		{"damaged partition", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.WriteMiddle, 1, false, mtu), pkey, mtu, mtu},
		{"another version", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.WriteMiddle, 1, false, mtu), version, mtu, mtu},
		{"another packet's number", pkt(wire.WriteFirst, 0, false, mtu, reth(1, 0, 3*mtu)), pkt(wire.WriteMiddle, 2, false, mtu), crc, mtu, mtu},
	} {
		t.Run(v.name, func(t *testing.T) {
			l := alone(t, 1, pairOptions{mtu: mtu})
			want := pattern(4*mtu, 77)
			mem := bytes.Clone(want)
			l.m.keys[1] = mem
			l.m.recv(mem)
			if v.open != nil {
				copy(want, v.open[len(v.open)-mtu-wire.ICRCLen:][:mtu])
				l.give(v.open)
			}
			l.spoiled(bytes.Clone(v.bad), v.spoil)
			if !bytes.Equal(mem[:v.kept], want[:v.kept]) {
				t.Error("the packets before the rejected one are gone")
			}
			if !bytes.Equal(mem[v.within:], want[v.within:]) {
				t.Error("the rejected packet has left bytes")
			}
		})
	}
	resp := func(op wire.Opcode, psn uint32, n int) []byte {
		if op == wire.ReadResponseMiddle {
			return pkt(op, psn, false, n)
		}
		return pkt(op, psn, false, n, aeth(wire.ACKNoCredits))
	}
	for _, v := range []struct {
		name   string
		bad    []byte
		spoil  func([]byte)
		within int
	}{
		{"damaged middle of a READ", resp(wire.ReadResponseMiddle, 1, mtu), crc, 2 * mtu},
		{"last of a READ where a middle belongs", resp(wire.ReadResponseLast, 1, mtu), none, mtu},
		{"READ response of another partition", otherPKey(resp(wire.ReadResponseMiddle, 1, mtu)), none, mtu},
		{"READ response with a NAK", pkt(wire.ReadResponseFirst, 1, false, mtu, aeth(wire.NAKRemoteAccess)), none, mtu},
		{"READ response of another packet", resp(wire.ReadResponseMiddle, 2, mtu), crc, mtu},
	} {
		t.Run(v.name, func(t *testing.T) {
			l := alone(t, 0, pairOptions{mtu: mtu})
			want := pattern(4*mtu, 77)
			mem := bytes.Clone(want)
			l.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: mem}, Length: 3 * mtu, RKey: 1})
			l.sent()
			opening := resp(wire.ReadResponseFirst, 0, mtu)
			copy(want, opening[len(opening)-mtu-wire.ICRCLen:][:mtu])
			l.give(opening)
			l.spoiled(bytes.Clone(v.bad), v.spoil)
			if !bytes.Equal(mem[:mtu], want[:mtu]) || !bytes.Equal(mem[v.within:], want[v.within:]) {
				t.Error("the rejected packet has left bytes")
			}
		})
	}
}

// TestLateDuplicateRead repeats a READ whose key has since been closed. Nobody waits for
// the response, so both QPs continue. A READ that was not fully answered before is
// rejected.
func TestLateDuplicateRead(t *testing.T) {
	const mtu = 256
	for _, n := range []int{10, 3 * mtu} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := alone(t, 1, pairOptions{mtu: mtu})
			l.m.keys[1] = pattern(4096, 1)
			read := func() []byte { return pkt(wire.ReadRequest, 0, false, 0, reth(1, 0, n)) }
			l.give(read())
			delete(l.m.keys, 1)
			l.expect(l.give(read()), "")
			l.m.keys[2] = pattern(4096, 2)
			after := packets(uint32(n), mtu)
			l.expect(l.give(pkt(wire.ReadRequest, after, false, 0, reth(2, 0, 4))),
				fmt.Sprintf("RDMA READ Response Only %d msn 2 4 bytes", after))
			if c := l.port[1].Counters(); c.StaleRequests != 1 || len(l.m.failed) != 0 || l.q.State() != rdma.StateRTS {
				t.Errorf("%d stale requests, failed %v, state %v", c.StaleRequests, l.m.failed, l.q.State())
			}
		})
	}
	t.Run("whose memory fails on the way", func(t *testing.T) {
		l := alone(t, 1, pairOptions{mtu: mtu})
		data := pattern(4096, 1)
		l.m.keys[1] = data
		read := func() []byte { return pkt(wire.ReadRequest, 0, false, 0, reth(1, 0, 3*mtu)) }
		l.give(read())
		l.q.h = failingReads{l.m, &source{b: data, err: errTest, at: mtu}}
		l.expect(l.give(read()), "RDMA READ Response First 0 msn 1 256 bytes")
		if len(l.m.failed) != 0 || l.q.State() != rdma.StateRTS || l.m.open != 0 {
			t.Errorf("failed %v, state %v, %d open", l.m.failed, l.q.State(), l.m.open)
		}
	})
	t.Run("that was not answered in full", func(t *testing.T) {
		l := alone(t, 1, pairOptions{mtu: mtu})
		l.m.keys[1] = pattern(1<<20, 1)
		read := func() []byte { return pkt(wire.ReadRequest, 0, false, 0, reth(1, 0, 1<<20)) }
		take := func() {
			b := read()
			l.spoiled(b, func([]byte) {})
		}
		take()
		l.port[1].round() // sends some of the responses
		delete(l.m.keys, 1)
		take()
		l.sent()
		if l.q.State() != rdma.StateErr {
			t.Errorf("state %v", l.q.State())
		}
	})
}

// A repeated READ is opened with the result of the previous EndRead, a new one with 0.
func TestRepeatedReadKnowsReports(t *testing.T) {
	const n = 10
	l := alone(t, 1, pairOptions{mtu: 256})
	l.m.keys[1] = pattern(4096, 1)
	read := func(psn uint32) { l.give(pkt(wire.ReadRequest, psn, false, 0, reth(1, 0, n))) }
	read(0)
	read(0)
	read(0)
	read(1)
	if want := []uint64{0, 1, 2, 0}; !slices.Equal(l.m.reported, want) {
		t.Errorf("three times one READ and then another are opened with %v, want %v", l.m.reported, want)
	}
}

// A QP that is closed, reset or failed right after a message arrived must still
// acknowledge the message.
func TestLeavingAcknowledges(t *testing.T) {
	for name, leave := range map[string]func(*QP){"close": (*QP).Close, "reset": (*QP).Reset, "fail": (*QP).Fail} {
		l := alone(t, 1, pairOptions{mtu: 256})
		l.m.keys[1] = pattern(4096, 1)
		l.spoiled(pkt(wire.WriteOnly, 0, true, 10, reth(1, 0, 10)), func([]byte) {})
		leave(l.q)
		if got := l.sent(); !strings.HasPrefix(got, "Acknowledge 0 ") && !strings.HasPrefix(got, "RC Acknowledge 0 ") {
			t.Errorf("%s after a WRITE: %q is sent, want its acknowledgement", name, got)
		}
	}
}
