package adapter_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// key is a memory key as the driver sees it.
type key struct {
	*made
	p          *program
	number     uint32
	mem, wire  uint32 // PSVs
	errors     uint32 // expected count
	expectNext bool
}

type keyKind struct {
	entries                       int
	signature, crypto, invalidate bool
	logPage                       uint8 // not 0: a KSM whose entries have 1<<logPage bytes
	length                        uint64
}

// newKey makes a key with commands as mlx5dv_create_mkey does.
func (p *program) newKey(k keyKind) *key {
	p.t.Helper()
	key := &key{p: p, errors: 1, expectNext: true}
	if k.signature {
		for _, psv := range []*uint32{&key.mem, &key.wire} {
			in := command(prm.CmdCreatePSV, 0, 16)
			prm.SetBits(in, 0x40, 4, 1)
			prm.SetBits(in, 0x48, 24, uint64(p.pd.Number()))
			_, out := p.devx(in, 32)
			*psv = uint32(prm.Bits(out, 0x88, 24))
		}
	}
	in, set := mkeyCommand(272, p.pd.Number(), prm.AccessModeKLM)
	set(1, 1, 1)
	set(0x10, 1, 1)
	set(0x15, 1, 1)
	if k.logPage != 0 {
		set(0x16, 2, prm.AccessModeKSM)
		set(0x1da, 6, uint64(k.logPage))
	}
	set(0xc0, 64, k.length)
	set(0x1a0, 32, uint64(k.entries+3)&^3)
	bsf := 0
	if k.signature {
		bsf += 4
	}
	if k.crypto {
		bsf += 4
		set(0x1e3, 2, 1)
	}
	if bsf > 0 {
		set(0x61, 1, 1)
		set(0x100, 32, uint64(bsf))
	}
	if k.invalidate {
		set(0x67, 1, 1)
	}
	o, out := p.devx(in, 16)
	key.made, key.number = o, uint32(prm.Bits(out, 0x48, 24))<<8
	return key
}

// umr is a configuration while it is built.
type umr struct {
	k       *key
	mask    uint64
	ctx     [64]byte
	entries []byte
	bsf     []byte
	psvs    []uint32
}

func (k *key) configure() *umr {
	u := &umr{k: k, mask: prm.MaskFree | prm.MaskMKey}
	binary.BigEndian.PutUint32(u.ctx[4:], 0xffffff00|k.number&0xff)
	return u
}

func (u *umr) access(a uint8) *umr { u.mask |= prm.MaskAccess; u.ctx[2] = a; return u }

func (u *umr) list(sges ...prm.Data) *umr {
	var n uint64
	for _, s := range sges {
		var d [16]byte
		prm.PutData(d[:], s)
		u.entries = append(u.entries, d[:]...)
		n += uint64(s.Length)
	}
	u.mask |= prm.MaskLen
	binary.BigEndian.PutUint64(u.ctx[24:], n)
	return u
}

func (u *umr) interleaved(repeat uint32, entries ...prm.Stride) *umr {
	b := make([]byte, 16*(len(entries)+1))
	var n uint64
	binary.BigEndian.PutUint32(b[4:], 0x400)
	binary.BigEndian.PutUint32(b[8:], repeat)
	binary.BigEndian.PutUint16(b[14:], uint16(len(entries)))
	for i, e := range entries {
		at := b[16*(i+1):]
		binary.BigEndian.PutUint16(at, e.Step)
		binary.BigEndian.PutUint16(at[2:], e.Count)
		binary.BigEndian.PutUint32(at[4:], e.LKey)
		binary.BigEndian.PutUint64(at[8:], e.Addr)
		n += uint64(e.Count)
	}
	u.entries = b
	u.mask |= prm.MaskLen
	binary.BigEndian.PutUint64(u.ctx[24:], n*uint64(repeat))
	return u
}

func (u *umr) enable() {
	u.mask |= prm.MaskBSF
	binary.BigEndian.PutUint32(u.ctx[12:], binary.BigEndian.Uint32(u.ctx[12:])|1<<30)
}

func (u *umr) signature(s prm.SignatureBSF) *umr {
	if s.Memory.Type != sig.NoSignature {
		s.Memory.PSV = u.k.mem
		u.psvs = append(u.psvs, u.k.mem)
	}
	if s.Wire.Type != sig.NoSignature {
		s.Wire.PSV = u.k.wire
		u.psvs = append(u.psvs, u.k.wire)
	}
	u.bsf = make([]byte, prm.BSFSize)
	s.Put(u.bsf, false)
	u.enable()
	return u
}

func (u *umr) crypto(c prm.CryptoBSF) *umr {
	u.bsf = make([]byte, prm.BSFSize)
	c.Put(u.bsf, false)
	u.enable()
	return u
}

// wqes returns the entries of the configuration: the last of them is signaled.
func (u *umr) wqes() (ws []*wqe) {
	if u.k.expectNext {
		u.mask |= prm.MaskSigErr
		binary.BigEndian.PutUint32(u.ctx[12:], binary.BigEndian.Uint32(u.ctx[12:])|u.k.errors&1<<26)
		u.k.expectNext = false
	}
	flags := uint8(prm.FlagCQUpdate)
	if len(u.psvs) > 0 {
		flags = 0
	}
	w := newWQE(prm.OpUMR, 0, u.k.number, flags)
	for len(u.entries)%64 != 0 {
		u.entries = append(u.entries, 0)
	}
	ctrl := make([]byte, 48)
	ctrl[0] = prm.UMRInline
	binary.BigEndian.PutUint16(ctrl[4:], uint16(len(u.entries)/16))
	binary.BigEndian.PutUint16(ctrl[6:], uint16(len(u.bsf)/16))
	binary.BigEndian.PutUint64(ctrl[8:], u.mask)
	w.bytes(ctrl...).bytes(u.ctx[:]...).bytes(u.entries...).bytes(u.bsf...)
	ws = append(ws, w)
	for i, psv := range u.psvs {
		f := uint8(prm.FlagSmallFence)
		if i == len(u.psvs)-1 {
			f |= prm.FlagCQUpdate
		}
		ws = append(ws, newWQE(prm.OpSetPSV, 0, 0, f).bytes(byte(psv>>24), byte(psv>>16), byte(psv>>8), byte(psv), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	}
	return ws
}

// do posts the configuration and waits for it.
func (u *umr) do(q *qp) {
	q.p.t.Helper()
	q.post(u.wqes()...)
	q.done()
}

const rwAccess = prm.ContextLW | prm.ContextRR | prm.ContextRW

var crc32Zeros = prm.SigDomain{Format: sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedZeros}}

// t10 returns the T10-DIF of the hardware's vector.
func t10() prm.SigDomain {
	return prm.SigDomain{Format: sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 0xf0debc9a, AppMask: 0xffff, Seed: sig.SeedOnes, Flags: sig.RefRemap}}
}

// TestSignatureError receives a block that is bad: a report comes before the completion,
// and no other one until the driver expects it.
func TestSignatureError(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 1)
		dst, to := p.b.mr(4096, 1)
		k := p.b.newKey(keyKind{entries: 4, signature: true})
		k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: dst.LKey(), Addr: to}).signature(prm.SignatureBSF{CheckMask: 0xff, Wire: t10()}).do(p.qb)
		block := append(bytes.Repeat([]byte{0xa5}, 512), 0xec, 0x7d, 0x56, 0x79, 0xf0, 0xde, 0xbc, 0x9a) // the application tag is wrong
		p.a.mem.put(from, block)
		receive := func() { p.qb.postRecv(prm.Data{Length: 520, LKey: k.number, Addr: 0}) }
		send := func() {
			p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(from, 520, src.LKey()))
			p.qa.done()
		}
		receive()
		send()
		b := p.qb.recv.wait()
		s := prm.ParseSigErrCQE(b)
		want := prm.SigErrCQE{Syndrome: prm.SigErrAppTag, Expected: 0x5679 << 32, Actual: 0x5678 << 32, MKey: k.number, QPN: p.qb.Number()}
		if prm.CQEOpcode(b[63]>>4) != prm.CQESigErr || s != want {
			t.Errorf("report %+v of kind %d, want %+v", s, b[63]>>4, want)
		}
		if r := p.qb.recv.waitCQE(); r.Opcode != prm.CQERecv || r.ByteCount != 520 {
			t.Errorf("completion %+v", r)
		}
		// A second error before the driver expects one is not reported.
		receive()
		send()
		if r := p.qb.recv.waitCQE(); r.Opcode != prm.CQERecv {
			t.Errorf("completion %+v", r)
		}
		// The driver counts the error in the next configuration: the next error is reported.
		k.errors++
		k.expectNext = true
		k.configure().access(rwAccess).do(p.qb)
		receive()
		send()
		if b := p.qb.recv.wait(); prm.CQEOpcode(b[63]>>4) != prm.CQESigErr {
			t.Errorf("kind %d, want a report", b[63]>>4)
		}
	})
}

// TestReportOrders compares both orders of the values of a bad block. The vendor's tests of an
// adapter assert the second one: with 0x5687 in the application tag of a field of the first
// block against 0x5678, actual 0x5687, expected 0x5678 and offset 519.
func TestReportOrders(t *testing.T) {
	good := append(bytes.Repeat([]byte{0xa5}, 512), 0xec, 0x7d, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a)
	crc32 := prm.SigDomain{Format: sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedZeros}}
	for _, v := range []struct {
		adapter bool
		domain  prm.SigDomain
		stream  []byte
		want    prm.SigErrCQE
	}{
		{false, t10(), append(bytes.Clone(good[:514]), 0x56, 0x87, 0xf0, 0xde, 0xbc, 0x9a), prm.SigErrCQE{Syndrome: prm.SigErrAppTag, Actual: 0x5678 << 32, Expected: 0x5687 << 32}},
		{true, t10(), append(bytes.Clone(good[:514]), 0x56, 0x87, 0xf0, 0xde, 0xbc, 0x9a), prm.SigErrCQE{Syndrome: prm.SigErrAppTag, Actual: 0x5687 << 32, Expected: 0x5678 << 32, Offset: 519}},
		{false, t10(), append(bytes.Clone(good), good...), prm.SigErrCQE{Syndrome: prm.SigErrRefTag, Actual: 0xf0debc9b, Expected: 0xf0debc9a, Offset: 520}},
		{true, t10(), append(bytes.Clone(good), good...), prm.SigErrCQE{Syndrome: prm.SigErrRefTag, Actual: 0xf0debc9a, Expected: 0xf0debc9b, Offset: 1039}},
		{true, crc32, make([]byte, 516), prm.SigErrCQE{Syndrome: prm.SigErrGuard, Expected: 0xffffffff << 32, Offset: 515}}, // the complement of a register that stays 0
	} {
		t.Run(fmt.Sprintf("%t/%d", v.adapter, len(v.stream)), func(t *testing.T) {
			p := newPair(t, options{adapterReports: v.adapter})
			src, from := p.a.mr(4096, 1)
			dst, to := p.b.mr(4096, 1)
			k := p.b.newKey(keyKind{entries: 4, signature: true})
			mask := uint8(0xff)
			if v.domain.Type == sig.CRC32 {
				mask = 0xf0
			}
			data := uint32(len(v.stream) / 512 * 512)
			k.configure().access(rwAccess).list(prm.Data{Length: data, LKey: dst.LKey(), Addr: to}).signature(prm.SignatureBSF{CheckMask: mask, Wire: v.domain}).do(p.qb)
			p.a.mem.put(from, v.stream)
			p.qb.postRecv(prm.Data{Length: uint32(len(v.stream)), LKey: k.number})
			p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(from, uint32(len(v.stream)), src.LKey()))
			p.qa.done()
			b := p.qb.recv.wait()
			got := prm.ParseSigErrCQE(b)
			v.want.MKey, v.want.QPN = k.number, p.qb.Number()
			if prm.CQEOpcode(b[63]>>4) != prm.CQESigErr || got != v.want {
				t.Errorf("report %+v of kind %d, want %+v", got, b[63]>>4, v.want)
			}
		})
	}
}

// TestRemoteKey lets the peer read and write through a key with interleaved data and
// fields.
func TestRemoteKey(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 1)
		dst, to := p.b.mr(8192, 1)
		k := p.b.newKey(keyKind{entries: 4, signature: true})
		mem := t10()
		k.configure().access(rwAccess).interleaved(2,
			prm.Stride{Step: 512, Count: 512, LKey: dst.LKey(), Addr: to},
			prm.Stride{Step: 8, Count: 8, LKey: dst.LKey(), Addr: to + 4096},
		).signature(prm.SignatureBSF{CheckMask: 0xff, Memory: mem}).do(p.qb)
		want := bytes.Repeat([]byte{0xa5}, 1024)
		p.a.mem.put(from, want)
		p.qa.post(
			newWQE(prm.OpWrite, 0, 0, 0).raddr(0, k.number).data(from, 1024, src.LKey()),
			newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(0, k.number).data(from+2048, 1024, src.LKey()),
		)
		p.qa.done()
		if !bytes.Equal(p.b.mem.get(to, 1024), want) || !bytes.Equal(p.a.mem.get(from+2048, 1024), want) {
			t.Error("the data differ")
		}
		if f := hex.EncodeToString(p.b.mem.get(to+4096, 16)); f != "ec7d5678f0debc9aec7d5678f0debc9b" {
			t.Errorf("fields %s", f)
		}
	})
}

// dek makes a plaintext DEK.
func (p *program) dek(k []byte) (*made, uint32) {
	p.t.Helper()
	in := command(prm.CmdCreateObject, prm.ObjectDEK, 272)
	const obj = 0x80
	prm.SetBits(in, obj+0x54, 4, uint64(len(k)/64))
	prm.SetBits(in, obj+0x5c, 4, prm.KeyPurposeXTS)
	prm.SetBits(in, obj+0x68, 24, uint64(p.pd.Number()))
	copy(in[0x40:], "metadata")
	copy(in[0x50:], k)
	o, out := p.devx(in, 16)
	return o, uint32(prm.Bits(out, 0x40, 32))
}

// TestCrypto encrypts on the wire: the peer sees a vector of IEEE Std 1619.
func TestCrypto(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 1)
		dst, to := p.b.mr(4096, 0xf)
		d, id := p.a.dek(append(bytes.Repeat([]byte{0x11}, 16), bytes.Repeat([]byte{0x22}, 16)...))
		in := command(prm.CmdQueryObject, prm.ObjectDEK, 16)
		prm.SetBits(in, 0x40, 32, uint64(id))
		out, err := p.a.ctx.Exec(0, in, 272)
		if err != nil || out[0x18] != 0 || string(out[0x40:0x48]) != "metadata" {
			t.Fatalf("query: %v, %x", err, out)
		}
		p.a.mem.put(from, bytes.Repeat([]byte{0x44}, 512))
		k := p.a.newKey(keyKind{entries: 4, crypto: true})
		c := prm.CryptoBSF{Order: prm.EncryptedWireSignature, DataUnitSize: 512, DEK: id}
		copy(c.Tweak[11:], []byte{0x33, 0x33, 0x33, 0x33, 0x33}) // 0x3333333333, big-endian
		k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: src.LKey(), Addr: from}).crypto(c).do(p.qa)
		// Drivers destroy a DEK before the keys that name it.
		if err := d.Close(); err != nil {
			t.Errorf("close of a DEK in use: %v", err)
		}
		p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(0, 512, k.number))
		p.qa.done()
		if got := hex.EncodeToString(p.b.mem.get(to, 32)); got != "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0" {
			t.Errorf("ciphertext %s", got)
		}
		other := p.a.newKey(keyKind{entries: 4, crypto: true})
		p.qa.post(other.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: src.LKey(), Addr: from}).crypto(c).wqes()...)
		p.qa.fails("a DEK that was destroyed: completion", prm.SyndromeMWBind)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pipeline makes the QP stop at a bad signature.
func (q *qp) pipeline() {
	in := command(prm.CmdInit2InitQP, 0, 272)
	prm.PutNumber(in, q.Number())
	prm.SetBits(in, 0x18*8+0x25, 1, 1)
	q.p.command(in, 16)
}

// TestPipelining stops the send queue at the fence after a bad block, and lets the
// program replace the request there. The program continues before Async of the event has returned.
func TestPipelining(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		net := p.a
		net.told = make(chan struct{})
		goOn := sync.OnceFunc(func() { close(net.told) })
		t.Cleanup(goOn)
		send := net.cq(64, nil)
		qa := net.qp(send, send, nil)
		qb := p.b.rc()
		qa.pipeline()
		qa.join(qb)
		src, from := p.a.mr(8192, 1)
		dst, to := p.b.mr(8192, 0xf)
		k := p.a.newKey(keyKind{entries: 4, signature: true})
		p.a.mem.put(from, append(bytes.Repeat([]byte{0xa5}, 512), 1, 2, 3, 4, 5, 6, 7, 8))
		k.configure().access(rwAccess).list(prm.Data{Length: 520, LKey: src.LKey(), Addr: from}).signature(prm.SignatureBSF{CheckMask: 0xff, Memory: t10()}).do(qa)
		qb.postRecv(prm.Data{Length: 8, LKey: dst.LKey(), Addr: to + 4096})
		at := qa.post(
			newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(0, 512, k.number),
			newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate|prm.FlagFence).inline([]byte("good")),
		)
		if b := send.wait(); prm.CQEOpcode(b[63]>>4) != prm.CQESigErr {
			t.Fatalf("kind %d, want a report", b[63]>>4)
		}
		if c := send.waitCQE(); c.SendOp != prm.OpWrite {
			t.Fatalf("completion %+v", c)
		}
		if e := <-p.a.events; e.typ != rdma.EventSQDrained || e.obj != qa.QP {
			t.Fatalf("event %+v", e)
		}
		q := make([]byte, 16)
		prm.SetBits(q, 0, 16, uint64(prm.CmdQueryQP))
		prm.SetBits(q, 0x48, 24, uint64(qa.Number()))
		out, err := p.a.ctx.Exec(0, q, 272)
		if err != nil {
			t.Fatal(err)
		}
		if state, next := prm.Bits(out, 0x18*8, 4), prm.Bits(out, 0x18*8+0x5a0, 16); state != prm.QPStateSQDrained || uint16(next) != at {
			t.Fatalf("state %d, next block %d, want 5 and %d", state, next, at)
		}
		p.a.mem.put(qa.sq+uint64(uint32(at)&(qa.blocks-1))*64+3, []byte{0}) // NOP
		qa.modify(adapter.QPModify{State: rdma.StateRTS, CurState: rdma.StateSQD}, ibv.AttrState|ibv.AttrCurState)
		if c := send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpNop || c.Counter != at {
			t.Errorf("completion %+v", c)
		}
		goOn()
		qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).inline([]byte("repaired")))
		if c := send.waitCQE(); c.SendOp != prm.OpSend {
			t.Errorf("completion %+v", c)
		}
		if r := qb.recv.waitCQE(); r.ByteCount != 8 || string(p.b.mem.get(to+4096, 8)) != "repaired" {
			t.Errorf("the peer received %+v %q", r, p.b.mem.get(to+4096, 8))
		}
	})
}

// TestUMRChecks: a configuration that wants its key to be free, or in use, is refused if the key is not.
func TestUMRChecks(t *testing.T) {
	p := newPair(t, options{})
	src, from := p.a.mr(4096, 1)
	k := p.a.newKey(keyKind{entries: 4})
	configure := func(check uint8, want prm.CQEOpcode) {
		t.Helper()
		qa := p.a.rc() // a refusal takes the queue to ERR
		qb := p.b.rc()
		qa.join(qb)
		ws := k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: src.LKey(), Addr: from}).wqes()
		ws[0].b[16] |= check
		qa.post(ws...)
		if c := qa.send.waitCQE(); c.Opcode != want {
			t.Errorf("check %#x: %+v, want opcode %d", check, c, want)
		}
	}
	configure(prm.UMRCheckInUse, prm.CQERequesterErr)
	configure(prm.UMRCheckFree, prm.CQERequester)
	configure(prm.UMRCheckFree, prm.CQERequesterErr)
	configure(prm.UMRCheckInUse, prm.CQERequester)
}
