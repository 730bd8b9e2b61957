package prm

// TransactionBSF is the attributes of a transaction signature: one CRC32C over the whole
// stream of a key, on the wire.
type TransactionBSF struct {
	Length   uint32 // bytes of data
	Init     bool   // the register starts with the seed, all ones
	Generate bool   // the CRC follows the data
	PSV      uint32 // that holds the register
}

// Fields of a BSF with transaction signatures, 32 bytes long.
const (
	bsfTransaction   = 1       // size of the BSF, the upper two bits of its first byte
	transactionGen   = 1 << 28 // of the wire domain; a memory domain's bits are 4 below
	transactionInit  = 1 << 29
	transactionMasks = 0xff // every byte is checked
)

// parse decodes the attributes. Programs use the CRC32C of the wire with the seed of ones;
// everything else is refused.
func (t *TransactionBSF) parse(b []byte) error {
	const op = "decode a transaction signature"
	flags, wire, memory := be.Uint32(b[16:]), be.Uint32(b[24:]), be.Uint32(b[28:])
	switch format := wire >> 24; {
	case b[0] != bsfTransaction<<6:
		return refuse(op, "first byte %#x: must be %#x, without crypto attributes", b[0], bsfTransaction<<6)
	case b[1] != transactionMasks:
		return refuse(op, "check mask %#x: must be %#x", b[1], transactionMasks)
	case b[2] != 0 || b[3] != 0 || be.Uint64(b[8:]) != 0:
		return refuse(op, "block signatures beside it (selectors %#x and %#x, formats %#x): must be 0", b[2], b[3], be.Uint64(b[8:]))
	case flags&^(transactionInit|transactionGen) != 0:
		return refuse(op, "t_init_gen %#x: only the wire domain's bits %#x are supported", flags, transactionInit|transactionGen)
	case memory != 0:
		return refuse(op, "the memory domain's format and PSV %#x: must be 0", memory)
	case be.Uint32(b[20:]) != 0:
		return refuse(op, "reserved bytes 20 to 23 are %#x: must be 0", be.Uint32(b[20:]))
	case format == bfsCRC32C|bfsSeedZero:
		return refuse(op, "format selector %#x: a CRC32C with a seed of zeros is not supported", format)
	case format != bfsCRC32C:
		return refuse(op, "format selector %#x: must be %#x (CRC32C)", format, bfsCRC32C)
	}
	*t = TransactionBSF{Length: be.Uint32(b[4:]), Init: flags&transactionInit != 0, Generate: flags&transactionGen != 0, PSV: wire & psvMask}
	return nil
}

// Put encodes the attributes into 64 bytes, of which 32 count.
func (t *TransactionBSF) Put(b []byte) {
	clear(b[:BSFSize])
	b[0], b[1] = bsfTransaction<<6, transactionMasks
	be.PutUint32(b[4:], t.Length)
	var flags uint32
	if t.Init {
		flags |= transactionInit
	}
	if t.Generate {
		flags |= transactionGen
	}
	be.PutUint32(b[16:], flags)
	be.PutUint32(b[24:], bfsCRC32C<<24|t.PSV)
}
