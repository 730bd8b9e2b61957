package roce

import (
	"github.com/softmkey/softmkey/internal/base/wire"
)

// packet is a received packet, cut into its parts. The slices point into the
// receive buffer.
type packet struct {
	wire.BTH           // Opcode is the operation, as the RC service names it
	service  uint8     // of the opcode
	head     int       // length of all headers
	deth     wire.DETH // of a datagram
	srq      uint32    // of an XRC request
	layout   wire.Layout
	ext      []byte // extended headers behind DETH and XRCETH
	payload  []byte // message bytes, without padding
	place    []byte // the memory of the message, if the payload was copied there already
}

// parse cuts p, which ends with the CRC, and reports whether it is a packet: a known
// opcode, as long as its headers, padded to a multiple of 4 and without payload where
// the opcode has none.
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
	k.service, k.Opcode, k.head = k.Opcode.Service(), k.Opcode.Operation(), head
	k.ext = p[wire.BTHLen:head]
	switch {
	case k.layout&wire.HasXRCETH != 0:
		h, size, _ := wire.ParseXRCETH(k.ext)
		k.srq, k.ext = h.SRQ, k.ext[size:]
	case k.layout&wire.HasDETH != 0:
		h, size, _ := wire.ParseDETH(k.ext)
		k.deth, k.ext = h, k.ext[size:]
	}
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
