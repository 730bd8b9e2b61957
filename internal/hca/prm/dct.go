package prm

import "github.com/softmkey/softmkey/internal/base/bitfield"

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

func (d *DCT) fields(f bitfield.Fields) {
	bitfield.Number(f, 0x04, 4, &d.State)
	bitfield.Number(f, 0x18, 4, &d.Offload)
	bitfield.Number(f, 0x28, 24, &d.UserIndex)
	bitfield.Number(f, 0x48, 24, &d.CQ)
	bitfield.Flag(f, 0x6c, &d.Read)
	bitfield.Flag(f, 0x6d, &d.Write)
	bitfield.Flag(f, 0x6e, &d.Atomic)
	bitfield.Number(f, 0x93, 5, &d.MinRNRNAK)
	bitfield.Number(f, 0xa8, 24, &d.SRQ)
	bitfield.Number(f, 0xc8, 24, &d.PD)
	bitfield.Number(f, 0x100, 64, &d.Key)
	bitfield.Number(f, 0x145, 3, &d.MTU)
	bitfield.Number(f, 0x148, 8, &d.Port)
}

// ParseDCT decodes the context in a CREATE_DCT, or in the answer of QUERY_DCT.
func ParseDCT(in []byte) (d DCT) {
	d.fields(bitfield.Read(in, dctOff))
	return d
}

// PutDCT encodes a context in a CREATE_DCT, or in the answer of QUERY_DCT.
func PutDCT(out []byte, d *DCT) { d.fields(bitfield.Write(out, dctOff)) }
