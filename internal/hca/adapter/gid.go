package adapter

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// GIDEntry is an entry of the GID table.
type GIDEntry struct {
	GID    [16]byte
	RoCEv2 bool // false: RoCE v1, which reaches devices of this project only
}

// gidTable is the table that an adapter with that address has: the link-local address
// and the address itself, both for RoCE v1 and for RoCE v2. Programs have index 3, the
// IPv4 address with RoCE v2, built in.
func gidTable(addr netip.Addr) []GIDEntry {
	link, own := linkLocal(addr), addr.As16()
	return []GIDEntry{{link, false}, {link, true}, {own, false}, {own, true}}
}

// linkLocal returns the link-local GID of a device, from the MAC address that stands for
// its IP address: 02:00 and the four bytes of an IPv4 address, or 02 and a hash of an
// IPv6 address.
func linkLocal(addr netip.Addr) [16]byte {
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		return addr.As16()
	}
	m := macOf(addr)
	return [16]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0, m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

// macOf returns the MAC address that stands for an IP address.
func macOf(addr netip.Addr) (m [6]byte) {
	addr = addr.Unmap()
	if addr.Is4() {
		a := addr.As4()
		return [6]byte{2, 0, a[0], a[1], a[2], a[3]}
	}
	a := addr.As16()
	h := sha256.Sum256(a[:])
	return [6]byte{2 | h[0]&^3, h[1], h[2], h[3], h[4], h[5]}
}

// guidOf returns the GUID of the device with an address.
func guidOf(addr netip.Addr) uint64 {
	g := linkLocal(addr)
	return binary.BigEndian.Uint64(g[8:])
}

// resolve returns the address that a GID of the peer names. A link-local GID of one of
// our devices holds its IPv4 address.
func (d *Device) resolve(gid [16]byte) (netip.Addr, error) {
	a := netip.AddrFrom16(gid).Unmap()
	if a.Is6() && a.IsLinkLocalUnicast() && d.eng.Addr().Is4() {
		if gid[8] == 0 && gid[9] == 0 && gid[11] == 0xff && gid[12] == 0xfe {
			return netip.AddrFrom4([4]byte{gid[10], gid[13], gid[14], gid[15]}), nil
		}
	}
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return a, operr.New("address", syscall.EINVAL, "GID %v names no host", rdma.GID(gid))
	case a.Is4() != d.eng.Addr().Is4():
		return a, operr.New("address", syscall.EINVAL, "GID %v: the device at %v cannot reach it", rdma.GID(gid), d.eng.Addr())
	}
	return a, nil
}

// address translates an address of the program into one of the engine.
func (d *Device) address(op string, a AHAttr) (rdma.AH, error) {
	switch {
	case !a.IsGlobal:
		return rdma.AH{}, operr.New(op, syscall.EINVAL, "an address without a GRH: RoCE needs a GID")
	case int(a.SGIDIndex) >= len(d.gids):
		return rdma.AH{}, operr.New(op, syscall.EINVAL, "GID index %d: the table has %d entries", a.SGIDIndex, len(d.gids))
	}
	to, err := d.resolve(a.DGID)
	switch {
	case err != nil && !d.gids[a.SGIDIndex].RoCEv2, !d.gids[a.SGIDIndex].RoCEv2 && to.IsLinkLocalUnicast() && to != d.eng.Addr() && !d.eng.Addr().IsLinkLocalUnicast():
		// RoCE v1 has no UDP. Between two devices of this project its GIDs name the
		// addresses of RoCE v2; those of another device do not.
		return rdma.AH{}, operr.New(op, syscall.EOPNOTSUPP, "GID index %d is of RoCE v1, which has no UDP, and GID %v is none of another softmkey device: use one of RoCE v2, %d for example", a.SGIDIndex, rdma.GID(a.DGID), len(d.gids)-1)
	case err != nil:
		return rdma.AH{}, err
	}
	return rdma.AH{DGID: rdma.GIDOf(to), FlowLabel: a.FlowLabel, HopLimit: a.HopLimit, TrafficClass: a.TrafficClass}, nil
}

// GIDs returns the GID table.
func (d *Device) GIDs() []GIDEntry { return d.gids }
