package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Packet is a UDP packet of a recording.
type Packet struct {
	Time      time.Time
	Interface int
	Sent      bool // recorded by its sender; otherwise by its receiver
	Lost      bool // lost on purpose, and never sent
	From, To  netip.AddrPort
	Payload   []byte
}

// mostPackets bounds the packets that Read takes.
const mostPackets = 1 << 20

// Read returns the UDP packets of a recording that begins with IP headers, as a Recorder writes
// them. Other packets are left out.
func Read(r io.Reader) ([]Packet, error) {
	ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return nil, err
	}
	var all []Packet
	for {
		data, ci, opts, err := ng.ReadPacketDataWithOptions()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("the recording is damaged or cut off after %d UDP packets: %w", len(all), err)
		case len(all) == mostPackets:
			return nil, fmt.Errorf("the recording has more than %d packets", mostPackets)
		}
		intf, err := ng.Interface(ci.InterfaceIndex)
		if err != nil || intf.LinkType != layers.LinkTypeRaw {
			continue
		}
		p := Packet{Time: ci.Timestamp, Interface: ci.InterfaceIndex, Lost: slices.Contains(opts.Comments, LostComment)}
		p.Sent = opts.Flags != nil && opts.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound
		if p.parse(data) {
			all = append(all, p)
		}
	}
}

// parse takes the addresses and the payload of an IP packet without options, and reports whether it
// is one with UDP.
func (p *Packet) parse(b []byte) bool {
	var from, to netip.Addr
	switch {
	case len(b) >= ipv4Len+udpLen && b[0] == 0x45 && b[9] == protoUDP:
		from, to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[ipv4Len:]
	case len(b) >= ipv6Len+udpLen && b[0]>>4 == 6 && b[6] == protoUDP:
		from, to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[ipv6Len:]
	default:
		return false
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < udpLen || n > len(b) {
		return false
	}
	p.From = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b))
	p.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
	p.Payload = slices.Clone(b[udpLen:n])
	return true
}
