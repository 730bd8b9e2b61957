package prm

import "fmt"

// Opcode is the opcode of a send queue entry (MLX5_OPCODE_*).
type Opcode uint8

// The opcodes that the adapter supports.
const (
	OpNop            Opcode = 0x00
	OpSendInv        Opcode = 0x01
	OpWrite          Opcode = 0x08
	OpWriteImm       Opcode = 0x09
	OpSend           Opcode = 0x0a
	OpSendImm        Opcode = 0x0b
	OpRead           Opcode = 0x10
	OpCmpSwap        Opcode = 0x11
	OpFetchAdd       Opcode = 0x12
	OpMaskedCmpSwap  Opcode = 0x14
	OpMaskedFetchAdd Opcode = 0x15
	OpSetPSV         Opcode = 0x20
	OpUMR            Opcode = 0x25
	OpMMO            Opcode = 0x2f // with modifier mmoDMA: copies memory
)

// mmoDMA is the modifier of OpMMO that copies memory.
const mmoDMA = 1

var opcodeNames = map[Opcode]string{
	OpNop: "NOP", OpSendInv: "SEND_INVAL", OpWrite: "RDMA_WRITE", OpWriteImm: "RDMA_WRITE_IMM", OpSend: "SEND", OpSendImm: "SEND_IMM",
	OpRead: "RDMA_READ", OpCmpSwap: "ATOMIC_CS", OpFetchAdd: "ATOMIC_FA", OpMaskedCmpSwap: "ATOMIC_MASKED_CS", OpMaskedFetchAdd: "ATOMIC_MASKED_FA",
	OpSetPSV: "SET_PSV", OpUMR: "UMR", OpMMO: "MMO",
}

// String returns the name in the driver's header without its prefix.
func (o Opcode) String() string {
	if s, ok := opcodeNames[o]; ok {
		return s
	}
	return fmt.Sprintf("opcode(%#x)", uint8(o))
}

// Atomic reports whether o is an atomic, masked or not.
func (o Opcode) Atomic() bool { return o == OpCmpSwap || o == OpFetchAdd || o.masked() }

func (o Opcode) masked() bool { return o == OpMaskedCmpSwap || o == OpMaskedFetchAdd }

// Flags of a control segment (fm_ce_se).
const (
	FlagSolicited  = 1 << 1
	FlagCQUpdate   = 2 << 2 // completes also on success
	FlagSmallFence = 1 << 5 // waits for the local requests before it
	FlagFence      = 4 << 5 // waits for reads, atomics and signature results
	fenceMask      = 7 << 5
)

// OnFirstError reports whether a request with these flags completes only if it fails first. If
// it is flushed after another request's failure, it has no completion.
func OnFirstError(flags uint8) bool { return flags>>2&3 == 1 }

// Sizes of the parts of send queue entries in bytes.
const (
	BlockSize   = 64 // unit of the send queue (WQEBB)
	ControlSize = 16
	DataSegSize = 16
	MaxWQESize  = 63 * 16 // the count of a control segment has 6 bits
)

// Control is the control segment at the start of every send queue entry.
type Control struct {
	OpMod  uint8
	Index  uint16 // index of the entry's first block, counted from the beginning of the queue
	Opcode Opcode
	QPN    uint32
	Size   int // size of the whole entry in bytes
	Flags  uint8
	Imm    uint32 // immediate data, the key to invalidate, or the key to configure
}

// Blocks returns the number of blocks of 64 bytes that the entry occupies.
func (c *Control) Blocks() int { return (c.Size + BlockSize - 1) / BlockSize }

// Fenced reports whether the request waits for earlier reads, atomics and signature
// results. The small fence does not, because the adapter executes local requests in order
// anyway.
func (c *Control) Fenced() bool { return c.Flags&fenceMask >= 2<<5 }

// ParseControl decodes the first 16 bytes of a send queue entry. It refuses a size
// smaller than a control segment.
func ParseControl(b []byte) (c Control, err error) {
	if len(b) < ControlSize {
		return c, refuse("decode a send request", "%d bytes, a control segment has %d", len(b), ControlSize)
	}
	w0, w1 := be.Uint32(b), be.Uint32(b[4:])
	c = Control{
		OpMod: uint8(w0 >> 24), Index: uint16(w0 >> 8), Opcode: Opcode(w0),
		QPN: w1 >> 8, Size: int(w1&0x3f) * 16,
		Flags: b[11], Imm: be.Uint32(b[12:]),
	}
	if c.Size < ControlSize {
		return c, refuse("decode a send request", "a size of 0: an entry has at least its control segment")
	}
	return c, nil
}

// Transport determines the segments between the control segment and the data.
type Transport uint8

// The transports.
const (
	Connected Transport = iota // RC, UC
	Datagram                   // UD: an address vector
	XRC                        // XRC: the number of the peer's SRQ
	Dynamic                    // DCI: an address vector with the target's access key
)

// Data is a data segment: Length bytes at Addr of the key LKey.
type Data struct {
	Length uint32
	LKey   uint32
	Addr   uint64
}

// InvalidLKey ends the list of a receive queue entry, with a length of 0.
const InvalidLKey = 0x100

// ParseData decodes a data segment of 16 bytes.
func ParseData(b []byte) Data {
	return Data{Length: be.Uint32(b), LKey: be.Uint32(b[4:]), Addr: be.Uint64(b[8:])}
}

// PutData encodes a data segment.
func PutData(b []byte, d Data) {
	be.PutUint32(b, d.Length)
	be.PutUint32(b[4:], d.LKey)
	be.PutUint64(b[8:], d.Addr)
}

const inlineBit = 1 << 31

// WQE is a decoded send queue entry. A reused WQE keeps the capacity of its lists.
type WQE struct {
	Control

	AV   AV     // Datagram, Dynamic
	SRQN uint32 // XRC

	RemoteAddr uint64 // RDMA and atomics
	RKey       uint32
	SwapAdd    uint64 // atomics: the value to swap in or to add
	Compare    uint64 // masked fetch and add: the highest bit of each field

	// Masked atomics.
	AtomicSize            int    // bytes of the word: 4 or 8
	SwapMask, CompareMask uint64 // masked compare and swap

	// The data is Inline, if HasInline is set, followed by the bytes of SGEs.
	SGEs      []Data
	HasInline bool
	Inline    []byte

	UMR UMR    // OpUMR
	PSV SetPSV // OpSetPSV
}

// SetPSV is the content of a SET_PSV: the initial values of a domain's signature.
type SetPSV struct {
	Index     uint32
	Transient uint64
}

// Parse decodes an entry, all of which must be in b. It refuses unknown opcodes and parts
// that do not fit b.
func (w *WQE) Parse(b []byte, t Transport) error {
	const op = "decode a send request"
	c, err := ParseControl(b)
	if err != nil {
		return err
	}
	*w = WQE{Control: c, SGEs: w.SGEs[:0], Inline: w.Inline[:0], UMR: w.UMR.empty()}
	if c.Size > len(b) {
		return refuse(op, "a size of %d bytes, the entry has room for %d", c.Size, len(b))
	}
	b = b[ControlSize:c.Size]
	take := func(n int, what string) ([]byte, error) {
		if len(b) < n {
			return nil, refuse(op, "%v of %d bytes: %d are left for %s, which takes %d", c.Opcode, c.Size, len(b), what, n)
		}
		p := b[:n]
		b = b[n:]
		return p, nil
	}
	switch c.Opcode {
	case OpNop:
		return nil
	case OpUMR:
		return w.UMR.parse(b)
	case OpMMO:
		if c.OpMod != mmoDMA {
			return refuse(op, "%v with modifier %d: %d (DMA) is supported", c.Opcode, c.OpMod, mmoDMA)
		}
		// The first segment names a scratch buffer for the adapter.
		p, err := take(3*DataSegSize, "a segment of metadata, a source and a destination")
		if err == nil {
			w.SGEs = append(w.SGEs, ParseData(p[DataSegSize:]), ParseData(p[2*DataSegSize:]))
		}
		return err
	case OpSetPSV:
		p, err := take(16, "a PSV segment")
		if err == nil {
			w.PSV = SetPSV{Index: be.Uint32(p) & 0xffffff, Transient: be.Uint64(p[8:])}
		}
		return err
	case OpSend, OpSendImm, OpSendInv, OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd, OpMaskedCmpSwap, OpMaskedFetchAdd:
	default:
		return refuse(op, "%v is not known", c.Opcode)
	}
	switch t {
	case Datagram, Dynamic:
		p, err := take(avSize, "an address vector")
		if err != nil {
			return err
		}
		if err := w.AV.parse(p); err != nil {
			return err
		}
	case XRC:
		p, err := take(16, "an XRC segment")
		if err != nil {
			return err
		}
		w.SRQN = be.Uint32(p) & 0xffffff
	}
	switch c.Opcode {
	case OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd, OpMaskedCmpSwap, OpMaskedFetchAdd:
		p, err := take(16, "a remote address segment")
		if err != nil {
			return err
		}
		w.RemoteAddr, w.RKey = be.Uint64(p), be.Uint32(p[8:])
	}
	switch {
	case c.Opcode.masked():
		n, err := w.maskedSize()
		if err != nil {
			return err
		}
		p, err := take(n, "the segment of a masked atomic")
		if err != nil {
			return err
		}
		w.parseMasked(p)
	case c.Opcode.Atomic():
		p, err := take(16, "an atomic segment")
		if err != nil {
			return err
		}
		w.SwapAdd, w.Compare = be.Uint64(p), be.Uint64(p[8:])
	}
	return w.parseData(b)
}

// extendedAtomic is the bit of a control segment's modifier that stands at every masked
// atomic. The bits below it are the logarithm of the word's size in units of 4 bytes.
const extendedAtomic = 8

// maskedSize takes the size of a masked atomic's word, and returns the size of its segment.
func (w *WQE) maskedSize() (int, error) {
	switch w.OpMod {
	case extendedAtomic:
		w.AtomicSize = 4
	case extendedAtomic | 1:
		w.AtomicSize = 8
	default:
		return 0, refuse("decode a send request", "%v with modifier %#x: 0x8 (4 bytes) and 0x9 (8 bytes) are supported", w.Opcode, w.OpMod)
	}
	if w.Opcode == OpMaskedCmpSwap {
		return 4 * w.AtomicSize, nil
	}
	return 16, nil // with 4 bytes, half of it is not used
}

// parseMasked decodes the segment of a masked atomic. The numbers have the size of the word.
func (w *WQE) parseMasked(b []byte) {
	number := func(i int) uint64 {
		if w.AtomicSize == 4 {
			return uint64(be.Uint32(b[4*i:]))
		}
		return be.Uint64(b[8*i:])
	}
	w.SwapAdd, w.Compare = number(0), number(1)
	if w.Opcode == OpMaskedCmpSwap {
		w.SwapMask, w.CompareMask = number(2), number(3)
	}
}

// parseData decodes inline data followed by data segments. Inline data has segments of 4
// bytes of length and the data, padded to 16 bytes. UCX sends its headers inline and its
// payload in data segments.
func (w *WQE) parseData(b []byte) error {
	const op = "decode a send request"
	for len(b) > 0 {
		if len(b) < 4 {
			return refuse(op, "%v: %d bytes behind the last data segment", w.Opcode, len(b))
		}
		n := be.Uint32(b)
		if n&inlineBit != 0 && n != inlineBit { // inlineBit alone is a data segment of 2 GiB
			n &^= inlineBit
			if len(w.SGEs) > 0 {
				return refuse(op, "%v: inline data behind a data segment", w.Opcode)
			}
			if uint64(n) > uint64(len(b)-4) {
				return refuse(op, "%v: %d bytes of inline data, the entry has room for %d", w.Opcode, n, len(b)-4)
			}
			w.HasInline = true
			w.Inline = append(w.Inline, b[4:4+n]...)
			b = b[min(len(b), (int(n)+4+15)&^15):]
			continue
		}
		if len(b) < DataSegSize {
			return refuse(op, "%v: %d bytes left for a data segment of %d", w.Opcode, len(b), DataSegSize)
		}
		w.SGEs = append(w.SGEs, ParseData(b))
		b = b[DataSegSize:]
	}
	return nil
}

const avSize = 48

// AV is the address vector of a datagram, or of a request of a DCI.
type AV struct {
	QKey         uint32 // of a datagram
	DCKey        uint64 // of a request of a DCI
	QPN          uint32 // the number of a DCT, too
	SL           uint8
	RLID         uint16
	MAC          [6]byte
	TrafficClass uint8
	HopLimit     uint8
	Global       bool // GID, SGIDIndex and FlowLabel are valid
	SGIDIndex    uint8
	FlowLabel    uint32
	GID          [16]byte
}

func (a *AV) parse(b []byte) error {
	q := be.Uint32(b[8:])
	if q&(1<<31) == 0 {
		return refuse("decode a datagram's address", "a compact address vector, only those of %d bytes are known", avSize)
	}
	grh := be.Uint32(b[28:])
	*a = AV{
		QKey: be.Uint32(b), DCKey: be.Uint64(b), QPN: q & 0xffffff, SL: b[12] & 0xf, RLID: be.Uint16(b[14:]),
		MAC: [6]byte(b[20:26]), TrafficClass: b[26], HopLimit: b[27],
		Global: grh>>30&1 != 0, SGIDIndex: uint8(grh >> 20), FlowLabel: grh & 0xfffff, GID: [16]byte(b[32:48]),
	}
	return nil
}

// StartPadding is a bit in the length of the data segments that receive an Ethernet frame: the adapter
// may align its write by bytes before the frame's start (MLX5_HW_START_PADDING in Linux). The length is
// in the other bits.
const StartPadding = 1 << 31

// ParseRecv decodes the data segments of a receive queue entry into sges. An empty
// segment with the key InvalidLKey ends the list.
func ParseRecv(sges []Data, b []byte) []Data {
	for ; len(b) >= DataSegSize; b = b[DataSegSize:] {
		d := ParseData(b)
		if d.Length == 0 && d.LKey == InvalidLKey {
			break
		}
		sges = append(sges, d)
	}
	return sges
}

// NextSRQ returns the index of the next entry of a shared receive queue, from the first
// 16 bytes of an entry (mlx5_wqe_srq_next_seg).
func NextSRQ(b []byte) uint16 { return be.Uint16(b[2:]) }

// SRQHeaderSize is the size of the header before the data segments of an entry of a
// shared receive queue.
const SRQHeaderSize = 16
