package prm

// DCT is the context of a DCT, in CREATE_DCT and in the answer of QUERY_DCT.
type DCT struct {
	State               uint8 // DCTState*, of an answer
	UserIndex           uint32
	CQ, SRQ, PD         uint32 // SRQ is the number of an SRQ or RMP
	Read, Write, Atomic bool   // rights of the initiators
	MinRNRNAK           uint8
	Key                 uint64 // access key
	MTU                 uint8  // enum ibv_mtu
	Port                uint8
	Offload             uint8 // 0: none
}

// States of a DCT in its context.
const (
	DCTStateActive  = 0
	DCTStateDrained = 2
)

const dctOff = 0x10 * 8

// ParseDCT decodes the context in a CREATE_DCT, or in the answer of QUERY_DCT.
func ParseDCT(in []byte) DCT {
	at := func(off, n int) uint64 { return Bits(in, dctOff+off, n) }
	return DCT{
		State: uint8(at(0x04, 4)), Offload: uint8(at(0x18, 4)), UserIndex: uint32(at(0x28, 24)), CQ: uint32(at(0x48, 24)),
		Read: at(0x6c, 1) != 0, Write: at(0x6d, 1) != 0, Atomic: at(0x6e, 1) != 0, MinRNRNAK: uint8(at(0x93, 5)),
		SRQ: uint32(at(0xa8, 24)), PD: uint32(at(0xc8, 24)), Key: at(0x100, 64), MTU: uint8(at(0x145, 3)), Port: uint8(at(0x148, 8)),
	}
}

// PutDCT encodes a context in a CREATE_DCT, or in the answer of QUERY_DCT.
func PutDCT(out []byte, d *DCT) {
	set := func(off, n int, v uint64) { SetBits(out, dctOff+off, n, v) }
	bit := func(off int, on bool) {
		if on {
			set(off, 1, 1)
		}
	}
	set(0x04, 4, uint64(d.State))
	set(0x18, 4, uint64(d.Offload))
	set(0x28, 24, uint64(d.UserIndex))
	set(0x48, 24, uint64(d.CQ))
	bit(0x6c, d.Read)
	bit(0x6d, d.Write)
	bit(0x6e, d.Atomic)
	set(0x93, 5, uint64(d.MinRNRNAK))
	set(0xa8, 24, uint64(d.SRQ))
	set(0xc8, 24, uint64(d.PD))
	set(0x100, 64, d.Key)
	set(0x145, 3, uint64(d.MTU))
	set(0x148, 8, uint64(d.Port))
}
