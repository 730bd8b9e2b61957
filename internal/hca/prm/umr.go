package prm

// Bits of a UMR's mask: the attributes that it sets (MLX5_WQE_UMR_CTRL_MKEY_MASK_*).
const (
	MaskLen       = 1 << 0
	MaskPageSize  = 1 << 1
	MaskStart     = 1 << 6
	MaskPD        = 1 << 7
	MaskRemoteInv = 1 << 8 // whether the peer may free the key
	MaskSigErr    = 1 << 9 // the expected count of signature errors
	MaskBSF       = 1 << 12
	MaskMKey      = 1 << 13 // the tag
	MaskQPN       = 1 << 14
	MaskLR        = 1 << 17
	MaskLW        = 1 << 18
	MaskRR        = 1 << 19
	MaskRW        = 1 << 20
	MaskAtomic    = 1 << 21
	MaskFree      = 1 << 29
	MaskAccess    = MaskLW | MaskRR | MaskRW | MaskAtomic
	maskOrdering  = 1<<23 | 1<<25 | 1<<47 // fences and relaxed ordering: the adapter keeps the order anyway
	maskPageSize5 = 1 << 42               // the sixth bit of the page size
	maskKnown     = MaskLen | MaskPageSize | maskPageSize5 | MaskStart | MaskPD | MaskRemoteInv | MaskSigErr | MaskBSF | MaskMKey | MaskQPN | MaskLR | MaskAccess | MaskFree | maskOrdering
	umrHeaderSize = 48 + 64
)

// Flags of a UMR's control segment.
const (
	UMRInline     = 1 << 7
	UMRCheckInUse = 1 << 6 // the key must not be free
	UMRCheckFree  = 1 << 5 // the key must be free
	UMRCheckQPN   = 1 << 3 // the key must be bound to this QP
	umrOffset     = 1 << 4 // the list goes to an offset of the key's
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
	RemoteInv bool
	LogPage   uint8
	Start     uint64
	Len       uint64

	// The list of the layout: Octowords of 16 bytes, which go to the octoword ListAt of the
	// key's list. They are in List, or if that is empty in the memory that ListIn names.
	Octowords int
	ListAt    uint64
	List      []byte
	ListIn    []Data

	// The layout, from ParseLayout: none, Entries, Strides repeated Repeat times, or Pages.
	HasLayout   bool
	Interleaved bool
	Entries     []Data
	Repeat      uint32
	Strides     []Stride
	Pages       []uint64

	HasSignature   bool
	Signature      SignatureBSF
	HasTransaction bool
	Transaction    TransactionBSF
	HasCrypto      bool
	Crypto         CryptoBSF
}

// empty returns a UMR that keeps the room of the lists.
func (u *UMR) empty() UMR {
	return UMR{Entries: u.Entries[:0], Strides: u.Strides[:0], Pages: u.Pages[:0], List: u.List[:0], ListIn: u.ListIn[:0]}
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
	u.Octowords = int(be.Uint16(ctrl[4:]))
	klm, bsf := u.Octowords*16, int(be.Uint16(ctrl[6:]))*16
	if u.Flags&umrOffset != 0 {
		u.ListAt, bsf = uint64(be.Uint32(ctrl[16:]))<<16|uint64(bsf/16), 0
	}
	if bad := u.Mask &^ maskKnown; bad != 0 {
		return refuse(op, "mask %#x: %#x is not known", u.Mask, bad)
	}
	qpn, flagsPD := be.Uint32(mkc[4:]), be.Uint32(mkc[12:])
	u.Free, u.Access = mkc[0]&0x40 != 0, mkc[2]
	u.QPN, u.Tag = qpn>>8, uint8(qpn)
	u.PD, u.BSFEnable, u.SigErr, u.RemoteInv = flagsPD&0xffffff, flagsPD>>30&1 != 0, flagsPD>>26&1 != 0, flagsPD>>24&1 != 0
	u.LogPage = mkc[0x3b] & 0x3f
	u.Start, u.Len = be.Uint64(mkc[16:]), be.Uint64(mkc[24:])
	if u.Mask&MaskFree != 0 && u.Free {
		return nil
	}
	u.HasLayout = u.Mask&MaskLen != 0
	if u.Flags&UMRInline == 0 && klm != 0 {
		if bsf != 0 {
			return refuse(op, "flags %#x: %d bytes of attributes behind a list that is not in the request", u.Flags, bsf)
		}
		return u.parseListIn(b, klm)
	}
	if klm+bsf > len(b) {
		return refuse(op, "%d bytes of entries and %d of attributes, the request has room for %d", klm, bsf, len(b))
	}
	u.List = append(u.List, b[:klm]...)
	if bsf == 0 {
		return nil
	}
	// The entries are padded to 64 bytes. For keys their count includes the padding.
	// For a window the count is half of that, but a window has no attributes.
	return u.parseBSF(b[klm : klm+bsf])
}

// parseListIn decodes the data segments that name the memory of a list of n bytes.
func (u *UMR) parseListIn(b []byte, n int) error {
	left := uint64(n)
	for ; left > 0; b = b[DataSegSize:] {
		if len(b) < DataSegSize {
			return refuse("decode a UMR", "a list of %d bytes, its data segments have %d", n, uint64(n)-left)
		}
		d := ParseData(b)
		d.Length = uint32(min(uint64(d.Length), left))
		if left -= uint64(d.Length); d.Length > 0 {
			u.ListIn = append(u.ListIn, d)
		}
	}
	return nil
}

// ParseLayout decodes the list of a layout. mode is the access mode of the key, and logPage
// the logarithm of its pages' size in modes MTT and KSM.
func (u *UMR) ParseLayout(mode, logPage uint8, list []byte) error {
	switch mode {
	case AccessModeMTT, AccessModeKSM:
		return u.parsePages(mode, logPage, list)
	}
	return u.parseLayout(list)
}

// parsePages decodes a list of pages. In mode MTT the first byte of the key lies in the first
// page, at the offset that the address of the first byte has. In mode KSM it is the first byte
// of the first entry: UCX makes keys that begin some bytes behind a multiple of the entries'
// size, and translates addresses so.
func (u *UMR) parsePages(mode, logPage uint8, list []byte) error {
	const op = "decode a UMR"
	if logPage < 9 || logPage > 51 {
		return refuse(op, "pages of 2^%d bytes: must be 2^9 to 2^51", logPage)
	}
	size := uint64(1) << logPage
	first := u.Start & (size - 1)
	if mode == AccessModeKSM {
		first = 0
	}
	if u.Len > 1<<62 {
		return refuse(op, "a length of %d bytes", u.Len)
	}
	entry := map[uint8]int{AccessModeMTT: 8, AccessModeKSM: DataSegSize}[mode]
	n := int((first + u.Len + size - 1) >> logPage)
	if n > len(list)/entry {
		return refuse(op, "%d bytes from %#x take %d pages of 2^%d bytes, the list has %d", u.Len, u.Start, n, logPage, len(list)/entry)
	}
	if mode == AccessModeMTT {
		for i := range n {
			u.Pages = append(u.Pages, be.Uint64(list[entry*i:])&^(size-1))
		}
		return nil
	}
	if size > 1<<31 {
		return refuse(op, "entries of 2^%d bytes: at most 2^31", logPage)
	}
	for i, left := 0, u.Len; i < n; i++ {
		d := ParseData(list[entry*i:])
		d.Length = uint32(min(size, left))
		left -= uint64(d.Length)
		u.Entries = append(u.Entries, d)
	}
	return nil
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
		// Linux' length counts the gap between data and metadata, too, where one key has
		// the pages of both.
		if sum := period * uint64(u.Repeat); u.Len < sum {
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
