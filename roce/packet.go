package roce

import (
	"github.com/softmkey/softmkey/internal/base/wire"
)

// packet is a received packet, cut into its parts. The slices point into the
// receive buffer.
type packet struct {
	wire.BTH
	layout  wire.Layout
	ext     []byte // extended headers
	payload []byte // message bytes, without padding
	place   []byte // where they have been copied already, in the memory of the message; nil: not yet
}

// parse cuts p, which ends with the CRC, and reports whether it is a packet of
// a reliable connection: a known opcode, as long as its headers, padded to a
// multiple of 4 and without payload where the opcode has none.
func (k *packet) parse(p []byte) bool {
	if len(p) < wire.MinPacket || len(p) > wire.MaxPacket || len(p)&3 != 0 {
		return false
	}
	k.BTH, _, _ = wire.ParseBTH(p)
	k.layout = k.Opcode.Layout()
	head := k.Opcode.HeaderLen()
	body := len(p) - wire.ICRCLen - head
	n := body - int(k.Pad)
	if k.layout == 0 || k.Version != 0 || body < 0 || n < 0 || k.layout&wire.HasPayload == 0 && body != 0 {
		return false
	}
	k.ext = p[wire.BTHLen:head]
	k.payload = p[head : head+n]
	return true
}

// inPartition reports whether k belongs to the default partition, as a full member or
// a limited one.
func (k *packet) inPartition() bool { return k.PKey&0x7fff == wire.DefaultPKey&0x7fff }

// imm returns the immediate data, which is the last of the extended headers.
func (k *packet) imm() uint32 {
	h, _, _ := wire.ParseImmDt(k.ext[len(k.ext)-wire.ImmDtLen:])
	return h.Imm
}

// pads returns the padding of n message bytes.
func pads(n int) int { return -n & 3 }

// packets returns how many packets a message of n bytes takes, at least one.
func packets(n uint32, mtu int) uint32 {
	if n == 0 {
		return 1
	}
	return uint32((uint64(n) + uint64(mtu) - 1) / uint64(mtu))
}
