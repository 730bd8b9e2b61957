package prm

import (
	"slices"

	"github.com/softmkey/softmkey/sig"
)

// BSFSize is the size of a byte stream format: the attributes of a key.
const BSFSize = 64

// Sizes of a BSF, the upper two bits of its first byte.
const (
	bsfInline       = 2 // with the inline sections of T10-DIF
	bsfWithCrypto   = 3 // with inline sections, followed by the crypto attributes
	bsfTypeCrypto   = 1
	bsfSameBlocks   = 1 << 4
	psvMask         = 0xffffff
	bfsCRC32C       = 0x40
	bfsRepeat       = 0x2
	bfsSeedZero     = 0x1
	inlineValid     = 1 << 15
	inlineRefresh   = 1 << 14
	inlineRepeat    = 1 << 7
	inlineSeed      = 1 << 3
	inlineIncRef    = 1 << 6
	inlineAppRefEsc = 2
	inlineAppEsc    = 1
)

// bfsSelectors are the format selectors of the types of a key. A T10-DIF has none: its inline section describes it.
var bfsSelectors = [...]uint8{sig.T10DIF: 0, sig.CRC32: 0x20, sig.CRC32C: bfsCRC32C, sig.CRC64: 0x50}

// SigDomain is the signature of one domain. Its seed and its flags are explicit, none of them a default.
type SigDomain struct {
	sig.Format
	PSV uint32
}

// SignatureBSF is the block signature attributes of a key.
type SignatureBSF struct {
	CheckMask uint8
	// Same means that both domains have the same blocks. CopyMask then selects the
	// bytes of a field that are copied.
	Same         bool
	CopyMask     uint8
	Memory, Wire SigDomain
}

// CryptoOrder is the order of signature and crypto in a crypto BSF.
type CryptoOrder uint8

// The orders.
const (
	EncryptedWireSignature   CryptoOrder = 0
	EncryptedMemorySignature CryptoOrder = 1
	EncryptedRawWire         CryptoOrder = 2
	EncryptedRawMemory       CryptoOrder = 3
)

// CryptoBSF is the crypto attributes of a key.
type CryptoBSF struct {
	Order        CryptoOrder
	DataUnitSize int
	Tweak        [16]byte // in the order of the BSF
	DEK          uint32
	KeyTag       [8]byte
}

// blockSelectors are the selectors of blockSizes, in their order.
var (
	blockSizes     = sig.KeyBlockSizes()
	blockSelectors = [...]uint8{1, 2, 6, 3, 4}
)

// blockSize returns the block size for a selector, or 0.
func blockSize(selector uint8) int {
	if i := slices.Index(blockSelectors[:], selector); i >= 0 {
		return blockSizes[i]
	}
	return 0
}

func selector(size int) uint8 {
	if i := slices.Index(blockSizes, size); i >= 0 {
		return blockSelectors[i]
	}
	return 0
}

// parseBSF decodes a signature BSF, a crypto BSF, or both.
func (u *UMR) parseBSF(b []byte) error {
	const op = "decode the attributes of a key"
	if len(b) != BSFSize && len(b) != 2*BSFSize {
		return refuse(op, "%d bytes: must be %d or %d", len(b), BSFSize, 2*BSFSize)
	}
	size := b[0] >> 6
	if b[0]&0xf == bsfTypeCrypto {
		if len(b) != BSFSize || size != bsfInline {
			return refuse(op, "crypto attributes with the first byte %#x in %d bytes", b[0], len(b))
		}
		u.HasCrypto = true
		return u.Crypto.parse(b)
	}
	switch {
	case size == bsfTransaction && len(b) == BSFSize:
		u.HasTransaction = true
		return u.Transaction.parse(b)
	case size == bsfInline && len(b) == BSFSize:
	case size == bsfWithCrypto && len(b) == 2*BSFSize:
		if b[BSFSize] != bsfWithCrypto<<6|bsfTypeCrypto {
			return refuse(op, "first byte %#x behind the signature attributes: must be %#x", b[BSFSize], bsfWithCrypto<<6|bsfTypeCrypto)
		}
		u.HasCrypto = true
		if err := u.Crypto.parse(b[BSFSize:]); err != nil {
			return err
		}
	default:
		return refuse(op, "first byte %#x in %d bytes of attributes", b[0], len(b))
	}
	u.HasSignature = true
	return u.Signature.parse(b[:BSFSize])
}

func (s *SignatureBSF) parse(b []byte) error {
	const op = "decode signature attributes"
	*s = SignatureBSF{CheckMask: b[1], Same: b[0]&bsfSameBlocks != 0}
	mem, err := parseDomain(op, "memory", be.Uint32(b[12:]), b[0x30:0x40], blockSize(b[3]), b[3] != 0)
	if err != nil {
		return err
	}
	wireSize, wired := blockSize(b[2]), b[2] != 0
	if s.Same {
		s.CopyMask = b[2]
		wireSize, wired = mem.BlockSize, true
	}
	wire, err := parseDomain(op, "wire", be.Uint32(b[8:]), b[0x20:0x30], wireSize, wired)
	s.Memory, s.Wire = mem, wire
	return err
}

// parseDomain decodes one domain: its format selector with the PSV, its inline section
// and its block size. A domain without a block size has no signature.
func parseDomain(op, name string, bfs uint32, inl []byte, size int, on bool) (d SigDomain, err error) {
	if !on {
		return d, nil
	}
	if size == 0 {
		return d, refuse(op, "the %s domain's block size selector is not known", name)
	}
	d = SigDomain{sig.Format{BlockSize: size, Seed: sig.SeedZeros}, bfs & psvMask}
	sel := uint8(bfs >> 24)
	format := sel &^ (bfsRepeat | bfsSeedZero)
	if format == 0 {
		return d, d.parseInline(op, name, inl)
	}
	i := slices.Index(bfsSelectors[:], format)
	if i < 0 {
		return d, refuse(op, "the %s domain's format selector %#x is not known", name, sel)
	}
	d.Type = sig.Type(i)
	if sel&bfsSeedZero == 0 {
		d.Seed = sig.SeedOnes
	}
	return d, nil
}

// inlineFlags are the bits of byte 13 of an inline section.
var inlineFlags = [...]struct {
	bit  byte
	flag sig.Flags
}{{inlineIncRef, sig.RefRemap}, {inlineAppRefEsc, sig.AppRefEscape}, {inlineAppEsc, sig.AppEscape}}

func (d *SigDomain) parseInline(op, name string, b []byte) error {
	flags := be.Uint16(b)
	if flags&inlineValid == 0 {
		return refuse(op, "the %s domain's T10-DIF section %#x is not valid", name, flags)
	}
	if b[8] != 1 && b[8] != 2 {
		return refuse(op, "the %s domain's T10-DIF type %d: must be 1 (CRC) or 2 (CSUM)", name, b[8])
	}
	d.Type, d.Guard = sig.T10DIF, sig.Guard(b[8]-1)
	d.AppTag, d.RefTag, d.AppMask = be.Uint16(b[2:]), uint64(be.Uint32(b[4:])), be.Uint16(b[14:])
	if b[9]&inlineSeed != 0 {
		d.Seed = sig.SeedOnes
	}
	for _, f := range inlineFlags {
		if b[13]&f.bit != 0 {
			d.Flags |= f.flag
		}
	}
	if d.Flags == 0 {
		d.Flags = sig.Plain
	}
	if d.AppMask == 0 {
		d.Flags |= sig.IgnoreApp
	}
	return nil
}

// Put encodes signature attributes into 64 bytes, as the driver writes them.
func (s *SignatureBSF) Put(b []byte, withCrypto bool) {
	clear(b[:BSFSize])
	b[0] = bsfInline << 6
	if withCrypto {
		b[0] = bsfWithCrypto << 6
	}
	b[1] = s.CheckMask
	be.PutUint32(b[4:], 0xffffffff)
	put := func(d *SigDomain, bfs, inl []byte) {
		switch w := d.PSV; d.Type {
		case sig.NoSignature:
		case sig.T10DIF:
			be.PutUint32(bfs, w)
			d.putInline(inl)
		default:
			w |= uint32(bfsSelectors[d.Type]|bfsRepeat) << 24
			if d.Seed != sig.SeedOnes {
				w |= bfsSeedZero << 24
			}
			be.PutUint32(bfs, w)
		}
	}
	put(&s.Wire, b[8:], b[0x20:])
	put(&s.Memory, b[12:], b[0x30:])
	b[3] = selector(s.Memory.BlockSize)
	if s.Same {
		b[0] |= bsfSameBlocks
		b[2] = s.CopyMask
	} else {
		b[2] = selector(s.Wire.BlockSize)
	}
}

func (d *SigDomain) putInline(b []byte) {
	be.PutUint16(b, inlineValid|inlineRefresh)
	be.PutUint16(b[2:], d.AppTag)
	be.PutUint32(b[4:], uint32(d.RefTag))
	b[8] = 1 + byte(d.Guard)
	b[9] = inlineRepeat
	if d.Seed == sig.SeedOnes {
		b[9] |= inlineSeed
	}
	for _, f := range inlineFlags {
		if d.Flags&f.flag != 0 {
			b[13] |= f.bit
		}
	}
	be.PutUint16(b[14:], d.AppMask)
}

func (c *CryptoBSF) parse(b []byte) error {
	const op = "decode crypto attributes"
	*c = CryptoBSF{Order: CryptoOrder(b[1]), DataUnitSize: blockSize(b[8]), Tweak: [16]byte(b[0x10:0x20]), DEK: be.Uint32(b[0x20:]) & 0xffffff, KeyTag: [8]byte(b[0x28:0x30])}
	switch {
	case c.Order > EncryptedRawMemory:
		return refuse(op, "order %d: must be 0 to 3", b[1])
	case b[3] != 0:
		return refuse(op, "standard %d: must be 0 (AES-XTS)", b[3])
	case c.DataUnitSize == 0:
		return refuse(op, "data unit size selector %d is not known", b[8])
	}
	return nil
}

// Put encodes crypto attributes into 64 bytes, as the driver writes them.
func (c *CryptoBSF) Put(b []byte, withSignature bool) {
	clear(b[:BSFSize])
	b[0] = bsfInline<<6 | bsfTypeCrypto
	if withSignature {
		b[0] = bsfWithCrypto<<6 | bsfTypeCrypto
	}
	b[1] = uint8(c.Order)
	be.PutUint32(b[4:], 0xffffffff)
	b[8] = selector(c.DataUnitSize)
	copy(b[0x10:], c.Tweak[:])
	be.PutUint32(b[0x20:], c.DEK)
	copy(b[0x28:], c.KeyTag[:])
}
