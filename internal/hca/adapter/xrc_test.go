package adapter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// xrc adds the segment that names the peer's SRQ.
func (w *wqe) xrc(srqn uint32) *wqe {
	return w.bytes(append(binary.BigEndian.AppendUint32(nil, srqn), make([]byte, 12)...)...)
}

// xrc makes a send QP on side a and a receive QP of a domain on side b, connected.
func (p *pair) xrc(t *testing.T, x *adapter.XRCD) (a, b *qp) {
	t.Helper()
	a = p.a.qp(p.qa.send, p.qa.recv, func(a *adapter.QPAttr) { a.Type, a.RecvCQ, a.RQCount, a.RQShift = ibv.XRCSend, nil, 0, 0 })
	target, err := p.b.ctx.CreateQP(adapter.QPAttr{Type: ibv.XRCRecv, XRCD: x})
	fatal.If(t, err)
	b = &qp{QP: target, p: p.b}
	a.modify(adapter.QPModify{State: rdma.StateInit, Port: 1}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	a.modify(adapter.QPModify{
		State: rdma.StateRTR, PathMTU: 3, DestQPN: b.Number(), RQPSN: 7, AV: adapter.AHAttr{DGID: p.b.dev.GIDs()[3].GID, SGIDIndex: 3, IsGlobal: true, Port: 1},
	}, ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN)
	a.toRTS(adapter.QPModify{Timeout: 18, RetryCnt: 7, RNRRetry: 7})
	b.toRTR(a, 3)
	return a, b
}

// TestXRC sends to two shared receive queues through one QP. Completions are those of
// the SRQ: its CQ and its user index.
func TestXRC(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		x, err := p.b.ctx.OpenXRCD()
		fatal.If(t, err)
		var queues [2]*srq
		var cqs [2]*cq
		for i := range queues {
			cqs[i] = p.b.cq(64, nil)
			queues[i] = p.b.srqWith(8, func(a *adapter.SRQAttr) { a.Type, a.XRCD, a.CQ, a.UIDX = 1, x, cqs[i].CQ, uint32(0x500+i) })
		}
		a, target := p.xrc(t, x)
		again, err := p.b.ctx.OpenQP(target.Number(), ibv.XRCRecv, x)
		if err != nil || again != target.QP {
			t.Fatalf("open: %v", err)
		}
		mr, at := p.b.mr(1<<16, 0xf)
		for i := range 20 {
			want := bytes.Repeat([]byte{byte(i + 1)}, 100)
			s, c := queues[i%2], cqs[i%2]
			index := s.post(prm.Data{Length: 1 << 12, LKey: mr.LKey(), Addr: at})
			a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).xrc(s.Number()).inline(want))
			a.done()
			if r := c.waitCQE(); r.Opcode != prm.CQERecv || r.Counter != index || r.UserIndex != uint32(0x500+i%2) || r.ByteCount != 100 {
				t.Fatalf("message %d: %+v", i, r)
			}
			if !bytes.Equal(p.b.mem.get(at, 100), want) {
				t.Fatalf("message %d: the data differ", i)
			}
			s.release(index)
		}
		a.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).xrc(0).raddr(at, mr.RKey()).inline([]byte("written")))
		if c := a.send.waitCQE(); c.Opcode != prm.CQERequester || string(p.b.mem.get(at, 7)) != "written" {
			t.Errorf("completion %+v", c)
		}
		if err := x.Close(); !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), fmt.Sprintf("QP %#x", target.Number())) {
			t.Errorf("close of a domain in use: %v", err)
		}
		if err := target.Close(); err != nil {
			t.Error(err)
		}
		if s, _ := target.Query(); s.State != rdma.StateRTR {
			t.Errorf("state %v while somebody else has the QP open", s.State)
		}
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestXRCShared lets the receive QP of one context fill the SRQ of another context of the
// device, which has another memory and another PD.
func TestXRCShared(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		other := open(t, p.b.dev, o)
		x, err := p.b.ctx.OpenXRCD()
		fatal.If(t, err)
		done := other.cq(64, nil)
		s := other.srqWith(8, func(a *adapter.SRQAttr) { a.Type, a.XRCD, a.CQ, a.UIDX = 1, x, done.CQ, 0x500 })
		mr, at := other.mr(1<<16, 0xf)
		a, target := p.xrc(t, x)
		s.post(prm.Data{Length: 64, LKey: mr.LKey(), Addr: at})
		a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).xrc(s.Number()).inline([]byte("to another program")))
		a.done()
		if r := done.waitCQE(); r.Opcode != prm.CQERecv || r.QPN != target.Number() || r.UserIndex != 0x500 || string(other.mem.get(at, 18)) != "to another program" {
			t.Fatalf("completion %+v", r)
		}
		again, err := other.ctx.OpenQP(target.Number(), ibv.XRCRecv, x)
		if err != nil || again != target.QP {
			t.Fatalf("open: %v", err)
		}
		// The QP ends with its own context, whoever has it open.
		p.b.ctx.Close()
		if _, err := other.ctx.OpenQP(target.Number(), ibv.XRCRecv, x); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("open of a QP whose context is closed: %v", err)
		}
		if err := again.Modify(&adapter.QPModify{State: rdma.StateErr}, ibv.AttrState); err == nil {
			t.Error("a QP of a closed context can be modified")
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if err := x.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("close of a domain in use: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}
