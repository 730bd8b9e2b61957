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
)

// bind builds the entry that binds a window, or unbinds it if n is 0, as the driver does.
func bind(typ int, number, tag uint32, qpn uint32, addr uint64, n, lkey uint32, access uint8) *wqe {
	mask := uint64(prm.MaskFree | prm.MaskMKey)
	ctrl, ctx := make([]byte, 48), make([]byte, 64)
	ctrl[0] = prm.UMRInline | 1<<4
	index := uint32(0xffffff00)
	if typ == 2 {
		mask |= prm.MaskQPN
		if n > 0 {
			index = qpn << 8
			ctrl[0] |= prm.UMRCheckFree
		} else {
			ctrl[0] |= prm.UMRCheckQPN
		}
	}
	binary.BigEndian.PutUint32(ctx[4:], index|tag)
	w := newWQE(prm.OpUMR, 0, number, prm.FlagCQUpdate)
	if n == 0 {
		ctx[0] = 0x40
	} else {
		mask |= prm.MaskLen | prm.MaskStart | prm.MaskAccess
		binary.BigEndian.PutUint16(ctrl[4:], 4)
		ctx[2] = access
		binary.BigEndian.PutUint64(ctx[16:], addr)
		binary.BigEndian.PutUint64(ctx[24:], uint64(n))
	}
	binary.BigEndian.PutUint64(ctrl[8:], mask)
	w.bytes(ctrl...).bytes(ctx...)
	if n > 0 {
		w.data(addr, n, lkey).bytes(make([]byte, 48)...)
	}
	return w
}

// TestWindow binds windows of both types; the peer writes through them, and cannot any
// more after they were unbound.
func TestWindow(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		for typ := 1; typ <= 2; typ++ {
			p := newPair(t, o)
			mr, at := p.b.mr(4096, 0x1f)
			mw, err := p.b.ctx.AllocMW(p.b.pd, typ)
			fatal.If(t, err)
			tag := uint32(0x42)
			p.qb.post(bind(typ, mw.RKey(), tag, p.qb.Number(), at+512, 1024, mr.LKey(), prm.ContextRW|prm.ContextRR|prm.ContextLW))
			if c := p.qb.send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpUMR {
				t.Fatalf("type %d: completion %+v", typ, c)
			}
			rkey := mw.RKey()&^0xff | tag
			want := pattern(800, 4)
			p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at+600, rkey).inline(want[:500]))
			p.qa.done()
			if !bytes.Equal(p.b.mem.get(at+600, 500), want[:500]) {
				t.Errorf("type %d: the data differ", typ)
			}
			if err := mr.Close(); err == nil {
				t.Errorf("type %d: a region with a window was closed", typ)
			}
			p.qb.post(bind(typ, rkey, tag+1, p.qb.Number(), 0, 0, 0, 0))
			p.qb.done()
			p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at+600, rkey).inline(want[:8]))
			if c := p.qa.send.waitCQE(); c.Syndrome != prm.SyndromeRemoteAccess {
				t.Errorf("type %d: completion %+v", typ, c)
			}
			if err := mw.Close(); err != nil {
				t.Error(err)
			}
			if err := mr.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRereg moves a region and takes away a right.
func TestRereg(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		mr, at := p.b.mr(4096, 0xf)
		write := func(addr uint64) prm.CQE {
			p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(addr, mr.RKey()).inline([]byte("hello")))
			return p.qa.send.waitCQE()
		}
		if c := write(at); c.Opcode != prm.CQERequester {
			t.Fatalf("completion %+v", c)
		}
		other := p.b.mem.alloc(4096)
		iova := 0x1000 | other&0xfff
		if err := mr.Rereg(adapter.ReregTranslation, nil, other, 4096, iova^1, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("addresses at another place in a page: %v, want EINVAL", err)
		}
		fatal.If(t, mr.Rereg(adapter.ReregTranslation, nil, other, 4096, iova, 0))
		if mr.IOVA() != iova {
			t.Errorf("iova %#x", mr.IOVA())
		}
		if c := write(iova + 1); c.Opcode != prm.CQERequester || string(p.b.mem.get(other+1, 5)) != "hello" {
			t.Fatalf("completion %+v, %q", c, p.b.mem.get(other, 8))
		}
		fatal.If(t, mr.Rereg(adapter.ReregAccess, nil, 0, 0, 0, 1))
		if c := write(iova + 1); c.Syndrome != prm.SyndromeRemoteAccess {
			t.Errorf("completion %+v", c)
		}
		if err := mr.Rereg(0, nil, 0, 0, 0, 0); err == nil {
			t.Error("no flags were taken")
		}
	})
}
