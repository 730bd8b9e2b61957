// Package wire has the packet headers of RoCEv2 and its invariant CRC.
//
// A RoCEv2 packet is the payload of a UDP datagram: a base transport header
// ([BTH]), the extended headers that its [Opcode] calls for, in the order of
// [Opcode.Layout], the message's bytes, padding to a multiple of 4, and the
// invariant CRC ([Flow], [Check]). For each header X there are PutX, which
// writes into a slice that is long enough, AppendX, which extends one, and
// ParseX, which reads one and returns how many bytes it took. Numbers are
// big-endian on the wire except for the CRC.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, chapter
// 9 (headers and opcodes) and annex A17 (RoCEv2).
package wire

import "errors"

// ErrShort is what ParseX returns for a slice that is shorter than the header.
var ErrShort = errors.New("wire: packet ends inside a header")

// QPNMask and PSNMask have the 24 bits of a QP number and of a packet sequence
// number.
const (
	QPNMask = 1<<24 - 1
	PSNMask = 1<<24 - 1
)

// Sizes of what surrounds a message's bytes.
const (
	ICRCLen   = 4
	MinPacket = BTHLen + ICRCLen
	// MaxPacket is the longest packet: 4096 bytes and the headers of an RDMA WRITE
	// with immediate on an extended reliable connection.
	MaxPacket = BTHLen + XRCETHLen + RETHLen + ImmDtLen + 4096 + ICRCLen
)

// DefaultPKey is the partition key that every RoCEv2 device has: full member of
// the default partition.
const DefaultPKey = 0xffff
