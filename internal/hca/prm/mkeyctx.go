package prm

// Access modes of a memory key's context.
const (
	AccessModePA  = 0 // physical addresses
	AccessModeMTT = 1 // pages
	AccessModeKLM = 2 // a list of keys
	AccessModeKSM = 3 // a list of keys, with the same number of bytes of each

	AccessModeMEMIC = 5 // device memory

	mkcOff = 0x10 * 8
)

// MKeyContext is the context of a memory key in CREATE_MKEY.
type MKeyContext struct {
	Free             bool
	UMR              bool
	Access           uint8 // Context*
	Mode             uint8 // AccessMode*
	Tag              uint8
	PD               uint32
	BSF              bool
	RemoteInvalidate bool
	Start, Len       uint64
	Octowords        uint32 // of the layout: entries of 16 bytes
	BSFOctowords     uint32
	Crypto           bool
	Length64         bool // PA: every address; Len is not used
	LogPage          uint8

	// The list of the layout in the command, for a key that is not free.
	ListOctowords uint32
	ListUmem      bool // the list is in a umem

	// The memory of a key in mode MTT that a program makes: the kernel, which alone has addresses for an adapter, lets
	// it name a umem.
	Umem       uint32
	UmemOffset uint64
}

// ParseCreateMKey decodes a CREATE_MKEY.
func ParseCreateMKey(in []byte) MKeyContext { return parseMKey(fieldsOf(in)) }

func parseMKey(command fieldOf) (m MKeyContext) {
	f := command.from(mkcOff)
	m = MKeyContext{
		Free: f(1, 1) != 0, UMR: f(0x10, 1) != 0, Mode: uint8(f(3, 3)<<2 | f(0x16, 2)),
		Tag: uint8(f(0x38, 8)), PD: uint32(f(0x68, 24)),
		BSF: f(0x61, 1) != 0, RemoteInvalidate: f(0x67, 1) != 0,
		Start: f(0x80, 64), Len: f(0xc0, 64), BSFOctowords: uint32(f(0x100, 32)), Octowords: uint32(f(0x1a0, 32)),
		Crypto: f(0x1e3, 2) != 0, Length64: f(0x60, 1) != 0, LogPage: uint8(f(0x1da, 6)),
		ListUmem: command(0x61, 1) != 0, ListOctowords: uint32(command(0x300, 32)),
		Umem: uint32(command(0x320, 32)), UmemOffset: command(0x340, 64),
	}
	for _, a := range []struct {
		off int
		bit uint8
	}{{0x11, ContextAtomic}, {0x12, ContextRW}, {0x13, ContextRR}, {0x14, ContextLW}, {0x15, ContextLR}} {
		if f(a.off, 1) != 0 {
			m.Access |= a.bit
		}
	}
	return m
}

// List returns the list of the layout in the command. ok is false if the command is too short
// for it.
func (m *MKeyContext) List(in []byte) (list []byte, ok bool) {
	n := uint64(m.ListOctowords) * DataSegSize
	if len(in) < ListAt || n > uint64(len(in)-ListAt) {
		return nil, false
	}
	return in[ListAt:][:n], true
}

// CreatePSV is a CREATE_PSV.
type CreatePSV struct {
	Count int
	PD    uint32
}

// ParseCreatePSV decodes a CREATE_PSV.
func ParseCreatePSV(in []byte) CreatePSV {
	return CreatePSV{Count: int(Bits(in, 0x40, 4)), PD: uint32(Bits(in, 0x48, 24))}
}

// PutPSVs writes the indexes of new PSVs to the answer of CREATE_PSV.
func PutPSVs(out []byte, indexes []uint32) {
	for i, n := range indexes {
		SetBits(out, 0x88+32*i, 24, uint64(n))
	}
}
