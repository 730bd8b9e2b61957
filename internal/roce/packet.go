package roce

import (
	"encoding/binary"

	"github.com/softmkey/softmkey/internal/net/wire"
)

// packet is a parsed packet. Its slices point into the receive buffer.
type packet struct {
	wire.BTH           // the Opcode has the service bits of RC, whatever the service is
	service  uint8     // service bits of the opcode
	head     int       // length of all headers
	deth     wire.DETH // UD only
	srq      uint32    // shared receive queue, XRC only
	layout   wire.Layout
	ext      []byte // extended headers after DETH and XRCETH
	payload  []byte // message bytes, without padding
	place    []byte // memory to which the payload was already copied, or nil
}

// parse parses p, which ends with the CRC. It reports whether p is well formed: the
// opcode is known, the length fits the headers and is a multiple of 4, and there is a
// payload only if the opcode allows one.
func (k *packet) parse(p []byte) bool { return k.parseUpTo(p, wire.MaxHeaders+largestMTU) }

// parseUpTo is parse for packets of at most a given length.
func (k *packet) parseUpTo(p []byte, most int) bool {
	if len(p) < wire.MinPacket || len(p) > most || len(p)&3 != 0 {
		return false
	}
	k.BTH = wire.ParseBTH(p)
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
		k.srq, k.ext = binary.BigEndian.Uint32(k.ext)&psnMask, k.ext[wire.XRCETHLen:]
	case k.layout&wire.HasDETH != 0:
		k.deth, k.ext = wire.ParseDETH(k.ext), k.ext[wire.DETHLen:]
	}
	k.payload = p[head : head+n]
	return true
}

// inPartition reports whether k has the default partition key, with full or limited
// membership.
func (k *packet) inPartition() bool { return k.PKey&0x7fff == wire.DefaultPKey&0x7fff }

// isReadResponse reports whether k carries data of a READ.
func (k *packet) isReadResponse() bool {
	return k.layout&wire.IsResponse != 0 && k.Opcode != wire.Acknowledge && k.Opcode != wire.AtomicAcknowledge
}

// imm returns the immediate data, the last extended header.
func (k *packet) imm() uint32 {
	return binary.BigEndian.Uint32(k.ext[len(k.ext)-wire.ImmDtLen:])
}

// pads returns the number of padding bytes after n message bytes.
func pads(n int) int { return -n & 3 }

// packets returns the number of packets of a message of n bytes, at least one.
func packets(n uint32, mtu int) uint32 {
	if n == 0 {
		return 1
	}
	return uint32((uint64(n) + uint64(mtu) - 1) / uint64(mtu))
}
