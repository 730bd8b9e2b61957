package adapter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

const dcKey = 0xfeedf00ddeadbeef

// dct adds the address vector of a DCT.
func (w *wqe) dct(to *adapter.Device, number uint32, key uint64) *wqe {
	b := make([]byte, 48)
	binary.BigEndian.PutUint64(b, key)
	binary.BigEndian.PutUint32(b[8:], number|1<<31)
	binary.BigEndian.PutUint32(b[28:], 1<<30|3<<20)
	gid := to.GIDs()[3].GID
	copy(b[32:], gid[:])
	return w.bytes(b...)
}

// dct makes a DCT in INIT.
func (p *program) dct(s *srq, c *cq) *qp {
	p.t.Helper()
	dct, err := p.ctx.CreateQP(adapter.QPAttr{Type: ibv.DCT, PD: p.pd, RecvCQ: c.CQ, SRQ: s.SRQ, UIDX: 0x700, DCKey: dcKey})
	fatal.If(p.t, err)
	q := &qp{QP: dct, p: p}
	q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1, AccessFlags: allAccess}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	return q
}

// dci makes a DCI in RTS.
func (p *program) dci() *qp {
	p.t.Helper()
	q := p.qp(p.cq(64, nil), p.cq(64, nil), func(a *adapter.QPAttr) { a.Type, a.RecvCQ, a.RQCount, a.RQShift = ibv.DCI, nil, 0, 0 })
	q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort)
	q.modify(adapter.QPModify{State: rdma.StateRTR, PathMTU: 3}, ibv.AttrState|ibv.AttrPathMTU)
	q.toRTS(adapter.QPModify{Timeout: 18, RetryCnt: 7, RNRRetry: 7})
	return q
}

// TestNoPeerOfDC checks that a DCT and a DCI take an address without a destination, as programs
// that use libmlx5 without DEVX give it, with every GID of the device, and that an RC QP does not.
func TestNoPeerOfDC(t *testing.T) {
	p := newPair(t, options{shared: true})
	s, c := p.b.srqWith(8, func(*adapter.SRQAttr) {}), p.b.cq(64, nil)
	for index := range uint8(5) {
		av := adapter.AHAttr{SGIDIndex: index, IsGlobal: true, HopLimit: 64, SL: 3}
		err := p.b.dct(s, c).Modify(&adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, MinRNRTimer: 1, AV: av}, ibv.AttrState|ibv.AttrPathMTU|ibv.AttrAV|ibv.AttrMinRNRTimer)
		if ok := int(index) < len(p.b.dev.GIDs()); (err == nil) != ok {
			t.Errorf("DCT, GID index %d: %v", index, err)
		}
		dci := p.a.qp(p.a.cq(64, nil), p.a.cq(64, nil), func(a *adapter.QPAttr) { a.Type, a.RecvCQ, a.RQCount, a.RQShift = ibv.DCI, nil, 0, 0 })
		dci.modify(adapter.QPModify{State: rdma.StateInit, Port: 1}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort)
		err = dci.Modify(&adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, AV: av}, ibv.AttrState|ibv.AttrPathMTU|ibv.AttrAV)
		if ok := int(index) < len(p.a.dev.GIDs()); (err == nil) != ok {
			t.Errorf("DCI, GID index %d: %v", index, err)
		}
	}
	rc := p.a.rc()
	rc.modify(adapter.QPModify{State: rdma.StateInit, Port: 1}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	err := rc.Modify(&adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, AV: adapter.AHAttr{SGIDIndex: 3, IsGlobal: true}},
		ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN|ibv.AttrMaxDestRdAtomic|ibv.AttrMinRNRTimer)
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an RC QP without a peer: %v", err)
	}
}

// TestDC sends from two DCIs to two DCTs, one made by verbs and one by a command. Completions
// are those of the DCT: its number, its CQ and its user index.
func TestDC(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		s, c := p.b.srqWith(8, func(*adapter.SRQAttr) {}), p.b.cq(64, nil)
		mr, at := p.b.mr(1<<16, 0xf)
		verbs := p.b.dct(s, c)
		verbs.modify(adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, MinRNRTimer: 1, AV: adapter.AHAttr{DGID: p.a.dev.GIDs()[3].GID, SGIDIndex: 3, IsGlobal: true}},
			ibv.AttrState|ibv.AttrPathMTU|ibv.AttrAV|ibv.AttrMinRNRTimer)
		in := command(prm.CmdCreateDCT, 0, 0x50)
		want := prm.DCT{UserIndex: 0x701, CQ: c.Number(), SRQ: s.Number(), PD: p.b.pd.Number(), Read: true, Write: true, Atomic: true, MinRNRNAK: 1, Key: dcKey + 1, MTU: 3, Port: 1}
		prm.PutDCT(in, &want)
		_, out := p.b.devx(in, 16)
		made := prm.NumberOf(out)
		query := command(prm.CmdQueryDCT, 0, 16)
		prm.PutNumber(query, made)
		if got := prm.ParseDCT(p.b.command(query, 0x50)); got != want {
			t.Errorf("QUERY_DCT: %+v, want %+v", got, want)
		}
		targets := []struct {
			number, uidx uint32
			key          uint64
		}{{verbs.Number(), 0x700, dcKey}, {made, 0x701, dcKey + 1}}
		initiators := []*qp{p.a.dci(), p.a.dci()}
		for i := range 12 {
			to, from := targets[i/3%2], initiators[i%2]
			data := pattern(3000, byte(i))
			local, la := p.a.mr(8192, 1)
			p.a.mem.put(la, data)
			index := s.post(prm.Data{Length: 1 << 12, LKey: mr.LKey(), Addr: at})
			from.post(
				newWQE(prm.OpSend, 0, 0, 0).dct(p.b.dev, to.number, to.key).data(la, 3000, local.LKey()),
				newWQE(prm.OpWrite, 0, 0, 0).dct(p.b.dev, to.number, to.key).raddr(at+8192, mr.RKey()).data(la, 3000, local.LKey()),
				newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).dct(p.b.dev, to.number, to.key).raddr(at+8192, mr.RKey()).data(la+4096, 3000, local.LKey()),
			)
			from.done()
			if r := c.waitCQE(); r.Opcode != prm.CQERecv || r.Counter != index || r.UserIndex != to.uidx || r.QPN != to.number || r.ByteCount != 3000 {
				t.Fatalf("round %d: %+v", i, r)
			}
			if !bytes.Equal(p.b.mem.get(at, 3000), data) || !bytes.Equal(p.b.mem.get(at+8192, 3000), data) || !bytes.Equal(p.a.mem.get(la+4096, 3000), data) {
				t.Fatalf("round %d: the data differ", i)
			}
			s.release(index)
			fatal.If(t, local.Close())
		}
		// A wrong key ends the requests of the initiator, and nothing else.
		initiators[0].post(newWQE(prm.OpSend, 0, 0, 0).dct(p.b.dev, made, dcKey).inline([]byte("no")))
		initiators[0].fails("wrong key", prm.SyndromeRemoteAccess)
		index := s.post(prm.Data{Length: 1 << 12, LKey: mr.LKey(), Addr: at})
		initiators[1].post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).dct(p.b.dev, made, dcKey+1).inline([]byte("yes")))
		initiators[1].done()
		if r := c.waitCQE(); r.Counter != index || string(p.b.mem.get(at, 3)) != "yes" {
			t.Errorf("after a wrong key: %+v", r)
		}
	})
}
