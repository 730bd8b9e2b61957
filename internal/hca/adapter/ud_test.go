package adapter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

const testQKey = 0x11111111

// datagrams makes a QP of type UD in RTS.
func (p *program) datagrams(send, recv *cq) *qp {
	q := p.qp(send, recv, func(a *adapter.QPAttr) { a.Type, a.BlockSelfMcast = rdma.UD, true })
	q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1, QKey: testQKey}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrQKey)
	q.modify(adapter.QPModify{State: rdma.StateRTR}, ibv.AttrState)
	q.modify(adapter.QPModify{State: rdma.StateRTS, SQPSN: 5}, ibv.AttrState|ibv.AttrSQPSN)
	return q
}

// to adds the address vector of a QP.
func (w *wqe) to(q *qp, sgid uint8) *wqe {
	b := make([]byte, 48)
	binary.BigEndian.PutUint32(b, testQKey)
	binary.BigEndian.PutUint32(b[8:], 1<<31|q.Number())
	b[27] = 64
	binary.BigEndian.PutUint32(b[28:], uint32(sgid)<<20)
	gid := q.p.dev.GIDs()[sgid].GID
	copy(b[32:], gid[:])
	return w.bytes(b...)
}

// TestUD sends datagrams by all GIDs; the receiver finds a GRH in front.
func TestUD(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		a, b := p.a.datagrams(p.a.cq(64, nil), p.a.cq(64, nil)), p.b.datagrams(p.b.cq(64, nil), p.b.cq(64, nil))
		mr, at := p.b.mr(4096, 1)
		for i, sgid := range []uint8{3, 1, 0, 2} {
			want := bytes.Repeat([]byte{byte(i + 1)}, 700)
			b.postRecv(prm.Data{Length: 2048, LKey: mr.LKey(), Addr: at})
			a.post(newWQE(prm.OpSendImm, 0, 0x77, prm.FlagCQUpdate).to(b, sgid).inline(want))
			if c := a.send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpSendImm {
				t.Fatalf("completion %+v", c)
			}
			r := b.recv.waitCQE()
			if r.Opcode != prm.CQERecvImm || r.ByteCount != 740 || r.Imm != 0x77 || !r.GRH || r.SL != prm.SLIPv4 || r.SrcQPN != a.Number() {
				t.Errorf("completion %+v", r)
			}
			if !bytes.Equal(p.b.mem.get(at+40, 700), want) {
				t.Error("the data differ")
			}
		}
		// A header inline and the payload by a data segment, as UCX sends.
		out, from := p.a.mr(4096, 9)
		b.postRecv(prm.Data{Length: 2048, LKey: mr.LKey(), Addr: at})
		a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).to(b, 3).inline([]byte("header!")).data(from, 600, out.LKey()))
		a.done()
		if r := b.recv.waitCQE(); r.ByteCount != 40+607 {
			t.Errorf("completion %+v", r)
		}
		if want := append([]byte("header!"), p.a.mem.get(from, 600)...); !bytes.Equal(p.b.mem.get(at+40, 607), want) {
			t.Error("inline data and a data segment: the data differ")
		}
		if got, _ := b.Query(); got.QKey != testQKey {
			t.Errorf("Q_Key %#x", got.QKey)
		}
		// A GID of RoCE v1 that is none of a device of this project names no address.
		foreign := newWQE(prm.OpSend, 0, 0, 0).to(b, 0)
		foreign.b[len(foreign.b)-5] ^= 0x40 // of the MAC address
		a.post(foreign.inline([]byte("x")))
		a.fails("completion", prm.SyndromeLocalQPOp)
	})
}

// TestMulticastRefused attaches QPs that cannot be in a group.
func TestMulticastRefused(t *testing.T) {
	p := newPair(t, options{shared: true})
	c := p.a.cq(4, nil)
	group := [16]byte{10: 0xff, 11: 0xff, 12: 239, 15: 1}
	if err := p.a.qp(c, c, nil).AttachMcast(group); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an RC QP: %v", err)
	}
	q := p.a.datagrams(c, c)
	if err := q.AttachMcast(group); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a network without multicast: %v", err)
	}
	if err := q.DetachMcast(group); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a QP that is in no group: %v", err)
	}
}

// TestUC sends and writes on unreliable connections of all GIDs.
func TestUC(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		for sgid := range uint8(4) {
			testUC(t, o, sgid)
		}
	})
}

func testUC(t *testing.T, o options, sgid uint8) {
	p := newPair(t, o)
	typ := func(a *adapter.QPAttr) { a.Type = rdma.UC }
	a, b := p.a.qp(p.a.cq(64, nil), p.a.cq(64, nil), typ), p.b.qp(p.b.cq(64, nil), p.b.cq(64, nil), typ)
	for _, x := range [][2]*qp{{a, b}, {b, a}} {
		q := x[0]
		q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1, AccessFlags: 2}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
		q.modify(adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, DestQPN: x[1].Number(), AV: adapter.AHAttr{DGID: x[1].p.dev.GIDs()[sgid].GID, SGIDIndex: sgid, IsGlobal: true}},
			ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN)
		q.modify(adapter.QPModify{State: rdma.StateRTS}, ibv.AttrState|ibv.AttrSQPSN)
	}
	mr, at := p.b.mr(1<<16, 3)
	want := pattern(1000, 9)
	b.postRecv()
	a.post(newWQE(prm.OpWriteImm, 0, 5, prm.FlagCQUpdate).raddr(at, mr.RKey()).inline(want[:900]))
	a.done()
	if r := b.recv.waitCQE(); r.Opcode != prm.CQERecvWriteImm || r.Imm != 5 || r.ByteCount != 900 {
		t.Errorf("completion %+v", r)
	}
	if !bytes.Equal(p.b.mem.get(at, 900), want[:900]) {
		t.Error("the data differ")
	}
}
