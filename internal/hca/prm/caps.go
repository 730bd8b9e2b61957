package prm

// CapType is a group of capabilities: the modifier of QUERY_HCA_CAP without its lowest
// bit. That bit selects the current values.
type CapType uint16

// The groups that the adapter has.
const (
	CapGeneral CapType = 0x00
	CapODP     CapType = 0x02
	CapAtomic  CapType = 0x03
	CapRoCE    CapType = 0x04
	CapCrypto  CapType = 0x1a
)

// CapAnswerSize is the size of the answer of QUERY_HCA_CAP.
const CapAnswerSize = capOff/8 + 4096

const capOff = 0x10 * 8

// Caps are the capabilities of an adapter, as reported by QUERY_HCA_CAP.
type Caps struct {
	LogMaxQP, LogMaxQPSize   uint8
	LogMaxCQ, LogMaxCQSize   uint8
	LogMaxSRQ, LogMaxSRQSize uint8
	LogMaxMKey, LogMaxPD     uint8
	LogMaxXRCD               uint8
	LogMaxMsg                uint8
	LogMaxKLMList            uint8
	LogMaxBSFList            uint8
	LogMaxRdAtomReq          uint8
	LogMaxRdAtomRes          uint8
	MaxIndirection           uint8
	GIDTableSize             uint16 // entries: 8, 16, 32, 64 or 128
	LocalCAAckDelay          uint8
	FrequencyKHz             uint32
	MaxSendWQE, MaxRecvWQE   uint16 // bytes of an entry
	RC, UC, UD, XRC          bool
	CQResize, CQModeration   bool
	CQOverrunIgnore          bool
	CQE128                   bool
	Signature                bool // T10-DIF, CRC32; all sizes of blocks but that of Block4048
	Block4048                bool
	CRC32C, CRC64            bool
	DrainSigErr              bool
	XTS                      bool
	SingleBlock              bool // AES-XTS with little-endian tweaks, in place of big-endian ones
	LogMaxRMP                uint8
	DC                       bool
	LogMaxMemcpy             uint8 // bytes of a request that copies memory; 0: there are none
	ODP                      ODP   // on-demand paging; the zero value: none
	WrappedImport            bool
	CryptoLogin              bool
	LogMaxDEKs               uint8
	AtomicSizes              uint16 // mask of sizes in bytes
}

// ODPOps is a set of operations on regions with on-demand paging (enum
// ibv_odp_transport_cap_bits).
type ODPOps uint8

// The operations.
const (
	ODPSend ODPOps = 1 << iota
	ODPReceive
	ODPWrite
	ODPRead
	ODPAtomic
	ODPSRQReceive
)

// ODP is the operations of each transport on regions with on-demand paging.
type ODP struct{ RC, UC, UD, XRC, DC ODPOps }

// roceUDPPort is the destination port of RoCE v2.
const roceUDPPort = 4791

// Put encodes a group of capabilities in the answer of QUERY_HCA_CAP. A group that the
// adapter does not have stays zero.
func (c *Caps) Put(out []byte, t CapType) {
	set := func(off, n int, v uint64) { SetBits(out, capOff+off, n, v) }
	flag := func(off int, on bool) {
		if on {
			set(off, 1, 1)
		}
	}
	switch t {
	case CapGeneral:
		c.putGeneral(set, flag)
		c.PutKeys(out[min(capOff/8, len(out)):])
	case CapODP:
		for i, ops := range []ODPOps{c.ODP.RC, c.ODP.UC, c.ODP.UD, c.ODP.XRC, c.ODP.DC} {
			for bit := range 6 {
				flag(0x80+0x20*i+bit, ops>>bit&1 != 0)
			}
		}
	case CapAtomic:
		set(0x40, 2, 1)    // atomic_req_8B_endianness_mode: old values of 8 bytes are stored as the machine has them
		flag(0x46, true)   // supported_atomic_req_8B_endianness_mode_1
		set(0x90, 16, 0xf) // compare and swap, fetch and add; the same masked
		set(0xb0, 16, uint64(c.AtomicSizes))
		if c.DC {
			set(0xd0, 16, uint64(c.AtomicSizes))
		}
	case CapRoCE:
		flag(6, true)           // fl_rc_qp_when_roce_enabled: QPs with forced loopback
		set(0x8c, 4, 1<<1|1<<2) // l3_type: IPv4 and IPv6
		set(0x98, 8, 1<<2)      // roce_version: v2
		set(0xb0, 16, roceUDPPort)
		set(0xf0, 16, uint64(c.GIDTableSize))
	case CapCrypto:
		flag(0, c.WrappedImport)
		if c.WrappedImport {
			set(0x18, 8, 0x4) // AES key wrap
		}
		set(0x2b, 5, uint64(c.LogMaxDEKs))
	}
}

func (c *Caps) putGeneral(set func(off, n int, v uint64), flag func(off int, on bool)) {
	set(0x6b, 5, uint64(c.LogMaxMemcpy))
	set(0x80, 8, uint64(c.LogMaxSRQSize))
	set(0x88, 8, uint64(c.LogMaxQPSize))
	set(0x9b, 5, uint64(c.LogMaxQP))
	set(0xab, 5, uint64(c.LogMaxSRQ))
	set(0xc8, 8, uint64(c.LogMaxCQSize))
	set(0xdb, 5, uint64(c.LogMaxCQ))
	set(0xea, 6, uint64(c.LogMaxMKey))
	flag(0xf7, true) // repeated_mkey: interleaved layouts
	set(0x100, 8, uint64(c.MaxIndirection))
	flag(0x108, true) // fixed_buffer_size
	set(0x112, 6, uint64(c.LogMaxBSFList))
	set(0x11a, 6, uint64(c.LogMaxKLMList))
	set(0x14a, 6, uint64(c.LogMaxRdAtomReq))
	flag(0x153, c.LogMaxMemcpy != 0) // dma_mmo_sq
	set(0x15a, 6, uint64(c.LogMaxRdAtomRes))
	for code, n := range []uint16{8, 16, 32, 64, 128} {
		if c.GIDTableSize > n {
			continue
		}
		set(0x170, 16, uint64(code))
		break
	}
	set(0x1ab, 5, uint64(c.LocalCAAckDelay))
	set(0x1b6, 2, 1) // port type: Ethernet
	set(0x1b8, 8, 1) // ports
	set(0x1c3, 5, uint64(c.LogMaxMsg))
	set(0x1fc, 4, 1) // CQE version
	flag(0x21a, c.DC)
	flag(0x21d, true) // roce
	flag(0x21e, true) // atomic
	flag(0x220, c.CQOverrunIgnore)
	flag(0x221, c.CQResize)
	flag(0x222, c.CQModeration)
	flag(0x227, c.ODP != ODP{}) // pg
	flag(0x22d, true)           // atm: asynchronous
	flag(0x23c, c.XRC)
	flag(0x23d, c.UD)
	flag(0x23e, c.UC)
	flag(0x23f, c.RC)
	flag(0x240, true) // uar_4k
	flag(0x260, true) // bf
	set(0x26b, 5, 9)  // BlueFlame registers of 512 bytes
	set(0x290, 16, uint64(c.MaxSendWQE))
	set(0x2b0, 16, uint64(c.MaxRecvWQE))
	set(0x32b, 5, uint64(c.LogMaxPD))
	set(0x33b, 5, uint64(c.LogMaxXRCD))
	set(0x383, 5, uint64(c.LogMaxRMP))
	set(0x4c0, 32, uint64(c.FrequencyKHz/1000))
	set(0x4e0, 32, uint64(c.FrequencyKHz))
	flag(0x5bd, c.CQE128)
}

// PutKeys encodes those general capabilities that are about the signatures and the encryption of
// memory keys. group is the group, without the header of an answer.
func (c *Caps) PutKeys(group []byte) {
	flag := func(off int, on bool) {
		if on {
			SetBits(group, off, 1, 1)
		}
	}
	flag(0x147, c.Signature && c.CRC64)
	flag(0x148, c.Signature && c.CRC32C)
	flag(0x1f0, c.Signature && c.Block4048)
	flag(0x20f, c.Signature && c.DrainSigErr)
	flag(0x212, c.Signature) // sigerr_cqe
	flag(0x217, c.Signature) // sho
	// libmlx5 reverses the bytes of the tweak for a multi-block, big-endian engine, and
	// limits a key to one data unit for a single-block one.
	flag(0x3f1, c.XTS && c.SingleBlock)
	flag(0x3f2, c.XTS && !c.SingleBlock)
	SetBits(group, 0x400, 64, c.objectTypes())
	flag(0x469, c.XTS)
	flag(0x480, c.Signature) // sigerr_domain_and_sig_type
}

func (c *Caps) objectTypes() (m uint64) {
	if c.XTS {
		m |= 1 << ObjectDEK
	}
	if c.XTS && c.CryptoLogin {
		m |= 1 << ObjectCryptoLogin
	}
	return m
}
