// Package wire encodes and decodes the packet headers of RoCEv2 and computes its
// invariant CRC.
//
// A RoCEv2 packet is the payload of a UDP datagram. It consists of the base transport
// header ([BTH]), the extended headers that belong to its [Opcode] in the order of
// [Opcode.Layout], the message bytes, padding to a multiple of 4, and the invariant CRC
// ([Flow], [Front]). For each header X, PutX writes the header to a slice, and ParseX reads it from a slice. Both
// panic if the slice is shorter than the header. Numbers are big-endian on the wire, except for the CRC.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, chapter 9 (headers
// and opcodes) and annex A17 (RoCEv2).
package wire

// QPNMask and PSNMask mask the 24 bits of a QP number and of a packet sequence number.
const (
	QPNMask = 1<<24 - 1
	PSNMask = 1<<24 - 1
)

// Sizes of the parts of a packet.
const (
	ICRCLen   = 4
	MinPacket = BTHLen + ICRCLen
	// MaxHeaders is the length of the longest headers of a packet with payload, those of an RDMA
	// WRITE with immediate on an extended reliable connection, and of the CRC.
	MaxHeaders = BTHLen + XRCETHLen + RETHLen + ImmDtLen + ICRCLen
	// MaxPayload is the largest path MTU of the standard.
	MaxPayload = 4096
	// MaxPacket is the longest packet.
	MaxPacket = MaxHeaders + MaxPayload
)

// DefaultPKey is the partition key of every RoCEv2 device: full membership of the default
// partition.
const DefaultPKey = 0xffff
