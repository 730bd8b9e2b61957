package adapter

import (
	"encoding/binary"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// confSlot is the room of a request's configuration of a memory key.
type confSlot struct {
	conf          engine.Configuration
	tag           uint8
	access        rdma.Access
	sig           mkey.Signature
	check, copied sig.Mask // of sig
	crypto        mkey.Crypto
	transaction   keydoor.Transaction
	object        *mkeyObject
	start         uint64
	remoteInv     bool
	owner         uint32
	part          []byte // of a list that comes in parts: the list so far
}

// translateUMR makes a UMR a request of the engine: a configuration of a memory key, its
// invalidation, or the binding of a window.
func (q *QP) translateUMR(slot *sendSlot) (rdma.Status, error) {
	const op = "configure a memory key"
	u, req, number := &slot.wqe.UMR, &slot.req, slot.wqe.Imm
	if w := q.attr.PD.eng.Window(number); w != nil {
		return q.translateWindow(slot, w)
	}
	free := u.Mask&prm.MaskFree != 0 && u.Free
	if free && !q.attr.local {
		req.Op, req.InvKey = ibv.WRLocalInv, number
		return 0, nil
	}
	key := q.attr.PD.eng.MKey(number)
	if q.attr.local {
		key = q.ctx.dev.eng.MKey(number)
	}
	s := &slot.conf
	s.object = nil
	if key != nil {
		s.object = lookup(q.ctx, q.ctx.mkeys, key.Number()>>8)
	}
	if s.object == nil {
		return rdma.StatusMWBindErr, failure.New(op, syscall.EINVAL, "key %#x is no memory key of the protection domain", number)
	}
	if !q.attr.pages && !isList(s.object.mode) {
		return rdma.StatusMWBindErr, failure.New(op, syscall.EACCES, "key %#x has pages: only the kernel's QPs, those with fast registration, change such keys", number)
	}
	s.conf = engine.Configuration{Key: key, Free: free, List: s.conf.List[:0], Interleaved: s.conf.Interleaved[:0]}
	s.part = nil
	if err := s.context(q, u); err != nil {
		return rdma.StatusMWBindErr, err
	}
	req.Op, req.Configure = ibv.WRConfigure, &s.conf
	if free {
		return 0, nil
	}
	if err := q.translateList(s, u); err != nil {
		return rdma.StatusMWBindErr, err
	}
	if s.part != nil { // only a part of the list so far: the key changes with the last part
		req.Op = ibv.WRNop
		return 0, nil
	}
	if err := s.attributes(q, u); err != nil {
		return rdma.StatusMWBindErr, err
	}
	return 0, nil
}

// context translates the fields of the key's context that the UMR sets.
func (s *confSlot) context(q *QP, u *prm.UMR) error {
	const op = "configure a memory key"
	key := s.conf.Key
	switch inUse := key.InUse(); {
	case inUse && u.Flags&prm.UMRCheckFree != 0:
		return failure.New(op, syscall.EINVAL, "key %#x is in use, and the request wants it to be free", key.Number())
	case !inUse && u.Flags&prm.UMRCheckInUse != 0:
		return failure.New(op, syscall.EINVAL, "key %#x is free, and the request wants it to be in use", key.Number())
	case u.Mask&prm.MaskQPN != 0 && u.QPN != noQPN && !q.ctx.guest:
		return failure.New(op, syscall.EINVAL, "key %#x: mask %#x sets QP %#x, and only windows have one", key.Number(), u.Mask, u.QPN)
	case u.Mask&prm.MaskQPN != 0 && u.QPN != noQPN && u.QPN != q.number:
		return failure.New(op, syscall.EINVAL, "key %#x: mask %#x sets QP %#x, and a window belongs to the QP that binds it, %#x", key.Number(), u.Mask, u.QPN, q.number)
	case u.Mask&prm.MaskPD != 0 && !q.attr.local:
		return failure.New(op, syscall.EINVAL, "key %#x: mask %#x sets the protection domain, which only the QP for UMRs does", key.Number(), u.Mask)
	case u.Mask&prm.MaskPD != 0:
		pd := lookup(q.ctx, q.ctx.pds, u.PD)
		if pd == nil {
			return missing("PD", u.PD)
		}
		s.conf.PD = pd.eng
	}
	if u.Mask&prm.MaskQPN != 0 {
		s.owner = 0
		if u.QPN != noQPN {
			s.owner = u.QPN
		}
		s.conf.Owner = &s.owner
	}
	if u.Mask&prm.MaskMKey != 0 {
		s.tag = u.Tag
		s.conf.Tag = &s.tag
	}
	if u.Mask&prm.MaskAccess != 0 {
		s.access = accessOf(u.Access)
		s.conf.Access = &s.access
	}
	if u.Mask&prm.MaskStart != 0 {
		s.start = u.Start
		s.conf.Start = &s.start
	}
	if u.Mask&prm.MaskRemoteInv != 0 {
		s.remoteInv = u.RemoteInv
		s.conf.RemoteInvalidate = &s.remoteInv
	}
	return nil
}

// noQPN in a key's context says that the key is not bound to a QP.
const noQPN = 0xffffff

// accessOf translates the access flags of a key's context.
func accessOf(c uint8) (a rdma.Access) {
	for _, f := range []struct {
		bit uint8
		a   rdma.Access
	}{{prm.ContextLW, rdma.LocalWrite}, {prm.ContextRR, rdma.RemoteRead}, {prm.ContextRW, rdma.RemoteWrite}, {prm.ContextAtomic, rdma.RemoteAtomic}} {
		if c&f.bit != 0 {
			a |= f.a
		}
	}
	return a
}

// layout sets the layout of a UMR for the key o, whose pages have 1<<logPage bytes.
func (s *confSlot) layout(u *prm.UMR, o *mkeyObject, logPage uint8) {
	if o.mode == prm.AccessModeMTT {
		t := &pageTable{mem: o.ctx.mem, shift: logPage, pages: slices.Clone(u.Pages)}
		s.conf.Memory = mkey.List{{Memory: t, Addr: u.Start & (1<<logPage - 1), Length: u.Len}}
		return
	}
	if !u.Interleaved {
		s.conf.HasList = true
		s.conf.List = appendSGEs(s.conf.List, u.Entries)
		return
	}
	s.conf.HasInterleaved, s.conf.Repeat = true, u.Repeat
	for _, e := range u.Strides {
		s.conf.Interleaved = append(s.conf.Interleaved, rdma.Strided{Addr: e.Addr, BytesCount: uint32(e.Count), BytesSkip: uint32(e.Step - e.Count), LKey: e.LKey})
	}
}

// attributes sets the signature and crypto attributes that the UMR has.
func (s *confSlot) attributes(q *QP, u *prm.UMR) error {
	if u.Mask&prm.MaskBSF != 0 && !u.BSFEnable && !u.HasSignature && !u.HasTransaction {
		s.conf.ResetSignature = true
	}
	if u.HasSignature {
		if u.Signature.Memory.Type == sig.NoSignature && u.Signature.Wire.Type == sig.NoSignature {
			s.conf.ResetSignature = true
		} else {
			s.check, s.copied = sig.Mask(u.Signature.CheckMask), sig.Mask(u.Signature.CopyMask)
			s.sig = mkey.Signature{CheckMask: &s.check}
			if u.Signature.Same {
				s.sig.CopyMask = &s.copied
			}
			s.sig.Memory = formatOf(&u.Signature.Memory)
			s.sig.Wire = formatOf(&u.Signature.Wire)
			s.conf.Signature = &s.sig
		}
	}
	if u.HasTransaction {
		t := &u.Transaction
		p := q.psv(t.PSV)
		if p == nil {
			return missing("PSV", t.PSV)
		}
		s.transaction = keydoor.Transaction{PSV: p.value, Init: t.Init, Generate: t.Generate, Length: uint64(t.Length)}
		s.conf.Transaction = &s.transaction
	}
	if u.HasCrypto {
		c := &u.Crypto
		d, err := q.ctx.dek(c.DEK, q.attr.PD)
		if err != nil {
			return err
		}
		s.crypto = mkey.Crypto{
			EncryptOnTX:  c.Order == prm.EncryptedWireSignature || c.Order == prm.EncryptedRawWire,
			Order:        mkey.SignatureAfterCrypto,
			DataUnitSize: c.DataUnitSize, InitialTweak: q.ctx.dev.tweakOf(c.Tweak), DEK: d, KeyTag: c.KeyTag,
		}
		if c.Order == prm.EncryptedWireSignature || c.Order == prm.EncryptedRawMemory {
			s.crypto.Order = mkey.SignatureBeforeCrypto
		}
		s.conf.Crypto = &s.crypto
	}
	return nil
}

// tweakOf reads a tweak: big-endian for a multi-block engine, little-endian for a
// single-block one.
func (d *Device) tweakOf(b [16]byte) xts.Tweak {
	if d.cfg.SingleBlock {
		return xts.Tweak{Lo: binary.LittleEndian.Uint64(b[:]), Hi: binary.LittleEndian.Uint64(b[8:])}
	}
	return xts.Tweak{Hi: binary.BigEndian.Uint64(b[:]), Lo: binary.BigEndian.Uint64(b[8:])}
}

// formatOf returns the signature of one domain, or nil for none.
func formatOf(d *prm.SigDomain) *sig.Format {
	if d.Type == sig.NoSignature {
		return nil
	}
	return &d.Format
}

// translateWindow makes a UMR of a window a binding or an invalidation.
func (q *QP) translateWindow(slot *sendSlot, w *engine.Window) (rdma.Status, error) {
	const op = "bind a memory window"
	u, req, number := &slot.wqe.UMR, &slot.req, slot.wqe.Imm
	b := &slot.bind
	*b = engine.Binding{Window: w, Number: number&^0xff | uint32(u.Tag)}
	if u.Mask&prm.MaskFree != 0 && u.Free {
		if w.Type() == engine.WindowType2 {
			req.Op, req.InvKey = ibv.WRLocalInv, number
			return 0, nil
		}
		req.Op, req.Bind = ibv.WRBindMW, b
		return 0, nil
	}
	if err := u.ParseLayout(prm.AccessModeKLM, 0, u.List); err != nil {
		return rdma.StatusMWBindErr, err
	}
	if !u.HasLayout || u.Interleaved || len(u.Entries) != 1 {
		return rdma.StatusMWBindErr, failure.New(op, syscall.EINVAL, "window %#x: it stands on exactly one range", number)
	}
	e := u.Entries[0]
	b.LKey, b.Addr, b.Length, b.Access = e.LKey, e.Addr, uint64(e.Length), accessOf(u.Access)&^rdma.LocalWrite // local rights are the region's
	switch {
	case u.Mask&prm.MaskStart == 0 || u.Start == e.Addr:
	case u.Start == 0:
		b.Access |= rdma.ZeroBased
	default:
		return rdma.StatusMWBindErr, failure.New(op, syscall.EINVAL, "window %#x: its addresses begin at %#x, and not at 0 or where the range begins, %#x", number, u.Start, e.Addr)
	}
	req.Op, req.Bind = ibv.WRBindMW, b
	return 0, nil
}

// beginUMR records what a configuration that begins says about reports. A layout is recorded if the configuration has one.
func (q *QP) beginUMR(slot *sendSlot) {
	s := &slot.conf
	if slot.req.Op != ibv.WRConfigure && s.part == nil || s.object == nil {
		return // the request is no configuration
	}
	if !s.conf.Free {
		s.object.layoutBegan(s, &slot.wqe.UMR)
	}
	s.object.reportsBegan(&slot.wqe.UMR)
}

func accessNames(a uint8) Names {
	return bitNames(a, []bitName{{prm.ContextLW, "LOCAL_WRITE"}, {prm.ContextRR, "REMOTE_READ"}, {prm.ContextRW, "REMOTE_WRITE"}, {prm.ContextAtomic, "REMOTE_ATOMIC"}})
}
