package prm

// Bits of a UMR's mask: the attributes that it sets (MLX5_WQE_UMR_CTRL_MKEY_MASK_*).
const (
	MaskLen       = 1 << 0
	MaskStart     = 1 << 6
	MaskSigErr    = 1 << 9 // the expected count of signature errors
	MaskBSF       = 1 << 12
	MaskMKey      = 1 << 13 // the tag
	MaskQPN       = 1 << 14
	MaskLW        = 1 << 18
	MaskRR        = 1 << 19
	MaskRW        = 1 << 20
	MaskAtomic    = 1 << 21
	MaskFree      = 1 << 29
	MaskAccess    = MaskLW | MaskRR | MaskRW | MaskAtomic
	maskKnown     = MaskLen | MaskStart | MaskSigErr | MaskBSF | MaskMKey | MaskQPN | MaskAccess | MaskFree
	umrHeaderSize = 48 + 64
)

// Flags of a UMR's control segment.
const (
	UMRInline    = 1 << 7
	UMRCheckFree = 1 << 5 // the key must be free
	UMRCheckQPN  = 1 << 3 // the key must be bound to this QP
	umrOffset    = 1 << 4
)

// Access flags of a key's context; the values of the byte in a UMR.
const (
	ContextLR     = 1 << 2
	ContextLW     = 1 << 3
	ContextRR     = 1 << 4
	ContextRW     = 1 << 5
	ContextAtomic = 1 << 6
)

// Stride is an entry of an interleaved layout: Count bytes of each Step.
type Stride struct {
	Step, Count uint16
	LKey        uint32
	Addr        uint64
}

// UMR is the configuration of a memory key or window by a send queue entry.
type UMR struct {
	Flags uint8
	Mask  uint64

	// The following fields belong to the key's context. Each is valid if its bit in
	// Mask is set.

	Free      bool
	Access    uint8 // Context*
	QPN       uint32
	Tag       uint8
	PD        uint32
	BSFEnable bool
	SigErr    bool // the expected count of signature errors, of one bit
	Start     uint64
	Len       uint64

	// The layout: none, Entries, or Strides repeated Repeat times.
	HasLayout   bool
	Interleaved bool
	Entries     []Data
	Repeat      uint32
	Strides     []Stride

	HasSignature   bool
	Signature      SignatureBSF
	HasTransaction bool
	Transaction    TransactionBSF
	HasCrypto      bool
	Crypto         CryptoBSF
}

// repeatOp marks the first entry of an interleaved layout.
const repeatOp = 0x400

func (u *UMR) parse(b []byte) error {
	const op = "decode a UMR"
	if len(b) < umrHeaderSize {
		return refuse(op, "%d bytes behind the control segment: at least %d", len(b), umrHeaderSize)
	}
	ctrl, mkc := b[:48], b[48:umrHeaderSize]
	b = b[umrHeaderSize:]
	u.Flags, u.Mask = ctrl[0], be.Uint64(ctrl[8:])
	klm, bsf := int(be.Uint16(ctrl[4:]))*16, int(be.Uint16(ctrl[6:]))*16
	if u.Flags&umrOffset != 0 {
		if bsf != 0 {
			return refuse(op, "a translation offset of %d: must be 0", bsf/16)
		}
	}
	if bad := u.Mask &^ maskKnown; bad != 0 {
		return refuse(op, "mask %#x: %#x is not known", u.Mask, bad)
	}
	qpn, flagsPD := be.Uint32(mkc[4:]), be.Uint32(mkc[12:])
	u.Free, u.Access = mkc[0]&0x40 != 0, mkc[2]
	u.QPN, u.Tag = qpn>>8, uint8(qpn)
	u.PD, u.BSFEnable, u.SigErr = flagsPD&0xffffff, flagsPD>>30&1 != 0, flagsPD>>26&1 != 0
	u.Start, u.Len = be.Uint64(mkc[16:]), be.Uint64(mkc[24:])
	if u.Mask&MaskFree != 0 && u.Free {
		return nil
	}
	if klm != 0 || bsf != 0 {
		if u.Flags&UMRInline == 0 {
			return refuse(op, "flags %#x: entries that are not in the request are not known", u.Flags)
		}
		if klm+bsf > len(b) {
			return refuse(op, "%d bytes of entries and %d of attributes, the request has room for %d", klm, bsf, len(b))
		}
	}
	if u.Mask&MaskLen != 0 {
		u.HasLayout = true
		if err := u.parseLayout(b[:klm]); err != nil {
			return err
		}
	} else if klm != 0 {
		return refuse(op, "%d bytes of entries without a length in the mask %#x", klm, u.Mask)
	}
	if bsf == 0 {
		return nil
	}
	// The entries are padded to 64 bytes. For keys their count includes the padding.
	// For a window the count is half of that, but a window has no attributes.
	return u.parseBSF(b[klm : klm+bsf])
}

func (u *UMR) parseLayout(b []byte) error {
	const op = "decode a UMR"
	if len(b) >= 16 && be.Uint32(b[4:]) == repeatOp {
		n := int(be.Uint16(b[14:]))
		if 16*(n+1) > len(b) {
			return refuse(op, "%d strided entries in %d bytes", n, len(b)-16)
		}
		u.Interleaved, u.Repeat = true, be.Uint32(b[8:])
		var period uint64
		for i := range n {
			e := b[16*(i+1):]
			s := Stride{Step: be.Uint16(e), Count: be.Uint16(e[2:]), LKey: be.Uint32(e[4:]), Addr: be.Uint64(e[8:])}
			if s.Step < s.Count {
				return refuse(op, "strided entry %d: %d bytes of every %d", i, s.Count, s.Step)
			}
			period += uint64(s.Count)
			u.Strides = append(u.Strides, s)
		}
		if sum := period * uint64(u.Repeat); u.Len != sum {
			return refuse(op, "a length of %d bytes, the strided entries have %d", u.Len, sum)
		}
		return nil
	}
	var sum uint64
	for ; len(b) >= DataSegSize; b = b[DataSegSize:] {
		d := ParseData(b)
		if d.Length == 0 {
			continue // padding
		}
		// The context's length determines the end of the key.
		d.Length = uint32(min(uint64(d.Length), u.Len-sum))
		if sum += uint64(d.Length); d.Length > 0 {
			u.Entries = append(u.Entries, d)
		}
	}
	if u.Len > sum {
		return refuse(op, "a length of %d bytes, the entries have %d", u.Len, sum)
	}
	return nil
}
