package adapter

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// GIDEntry is an entry of the GID table.
type GIDEntry struct {
	GID    [16]byte // all zeros: the entry is empty
	RoCEv2 bool     // false: RoCE v1. Over UDP sockets it reaches devices of this project only

	// The following fields are set by SetGID only.
	MAC  [6]byte // packets leave from it
	VLAN uint16  // 0: without a tag

	port int // entry of the port's table
}

// SetGID sets an entry of the GID table of a device that was opened without an address, or
// appends one. The device owns conn, which packets leave from; that of an empty entry has no
// address.
func (d *Device) SetGID(index int, e GIDEntry, conn packetconn.Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	table := slices.Clone(d.GIDs())
	if err := d.eng.Port().SetGID(index, conn); err != nil {
		return err
	}
	if index == len(table) {
		table = append(table, GIDEntry{})
	}
	e.port = index
	table[index] = e
	d.gids.Store(&table)
	return nil
}

// GIDTableSize is the number of entries of the GID table that programs see. Those behind the end of GIDs are empty.
const GIDTableSize = 16

// gid returns the entry of the GID table with an index.
func (d *Device) gid(op string, index uint8) (e GIDEntry, err error) {
	table := d.GIDs()
	if int(index) >= max(len(table), GIDTableSize) {
		return e, failure.New(op, syscall.EINVAL, "GID index %d: the table has %d entries", index, GIDTableSize)
	}
	if int(index) < len(table) {
		e = table[index]
	}
	if e.GID == [16]byte{} {
		return e, failure.New(op, syscall.ENODATA, "GID index %d: the entry is empty", index)
	}
	return e, nil
}

// local returns the address of the device from which packets of an entry leave, if the device has addresses.
func (d *Device) local(e *GIDEntry) netip.Addr {
	if own := d.eng.Addr(); !own.IsValid() || e.port == 0 {
		return own
	}
	return e.addressOf()
}

// addressOf returns the IP address of an entry.
func (e *GIDEntry) addressOf() netip.Addr { return netip.AddrFrom16(e.GID).Unmap() }

// gidTable is the table that an adapter with that address has: the link-local address
// and the address itself, both for RoCE v1 and for RoCE v2. Programs have index 3, the
// IPv4 address with RoCE v2, built in.
func gidTable(addr netip.Addr) []GIDEntry {
	link, own := linkLocal(addr), addr.As16()
	return []GIDEntry{{GID: link}, {GID: link, RoCEv2: true}, {GID: own}, {GID: own, RoCEv2: true}}
}

// linkLocal returns the link-local GID of a device, from which the devices on its link find its
// address; see Device.resolve. It holds an IPv4 address, in the form of the MAC address that
// stands for it, or the interface identifier of an IPv6 address, its lower half.
func linkLocal(addr netip.Addr) [16]byte {
	g := eui64(addr)
	if addr = addr.Unmap(); addr.Is6() {
		a := addr.As16()
		copy(g[8:], a[8:])
	}
	return g
}

// firstIP is the index behind the link-local entries of gidTable.
const firstIP = 2

// placeGID puts the two entries of an address at the first indexes that are empty and not avoided.
func placeGID(table []GIDEntry, e GIDEntry, avoid ...int) []GIDEntry {
	for _, e.RoCEv2 = range []bool{false, true} {
		i := firstIP
		for i < len(table) && table[i].GID != [16]byte{} || slices.Contains(avoid, i) {
			i++
		}
		for len(table) <= i {
			table = append(table, GIDEntry{})
		}
		table[i] = e
	}
	return table
}

// withoutGID returns a table without the entries of an address, and their indexes.
func withoutGID(table []GIDEntry, addr netip.Addr) (left []GIDEntry, at []int) {
	left = slices.Clone(table)
	for i := firstIP; i < len(left); i++ {
		if left[i].addressOf() == addr {
			at, left[i] = append(at, i), GIDEntry{}
		}
	}
	for len(left) > firstIP && left[len(left)-1].GID == [16]byte{} {
		left = left[:len(left)-1]
	}
	return left, at
}

// Addresses returns the addresses of the GID table, besides the link-local ones that every device has.
func (d *Device) Addresses() (list []netip.Addr) {
	for i, e := range d.GIDs() {
		if i >= firstIP && e.RoCEv2 {
			list = append(list, e.addressOf())
		}
	}
	return list
}

// AddAddress adds the two entries of an address to the GID table. open is called for an address that the device
// has not had before. ENOSPC: the table is full. The caller raises the event.
func (d *Device) AddAddress(addr netip.Addr, open func() (packetconn.Conn, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	port := d.eng.Port()
	addrs := port.Addrs()
	at := slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr() == addr })
	e := GIDEntry{GID: addr.As16(), port: max(at, 0)}
	if at < 0 {
		e.port = len(addrs)
	}
	table := placeGID(slices.Clone(d.GIDs()), e)
	if len(table) > GIDTableSize {
		return failure.New("address", syscall.ENOSPC, "%v: the table has %d entries", addr, GIDTableSize)
	}
	if at < 0 {
		conn, err := open()
		if err != nil {
			return err
		}
		if err := port.SetGID(e.port, conn); err != nil {
			conn.Close()
			return err
		}
	}
	d.gids.Store(&table)
	return nil
}

// RemoveAddress empties the entries of an address. The caller raises the event. As in a kernel, queue pairs that use
// the address go on; so does its socket, because the address may come back.
func (d *Device) RemoveAddress(addr netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	table, _ := withoutGID(d.GIDs(), addr)
	d.gids.Store(&table)
}

// eui64 returns the link-local address that an interface with the MAC address of addr forms.
func eui64(addr netip.Addr) [16]byte {
	m := macOf(addr)
	return [16]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0, m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

// macOf returns the MAC address that stands for an IP address: 02:00 and the four bytes of an
// IPv4 address, or 02 and a hash of an IPv6 address.
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
	g := eui64(addr)
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		g = addr.As16()
	}
	return binary.BigEndian.Uint64(g[8:])
}

// resolve returns the address that a GID of the peer names. A link-local GID of one of
// our devices holds its IPv4 address, or names the host with that interface identifier in the
// IPv6 network of this device, a /64 as on every Ethernet. own is the address that packets leave from.
func resolve(gid [16]byte, own netip.Addr) (netip.Addr, error) {
	a := netip.AddrFrom16(gid).Unmap()
	if a.Is6() && a.IsLinkLocalUnicast() && own.Is4() {
		if gid[8] == 0 && gid[9] == 0 && gid[11] == 0xff && gid[12] == 0xfe {
			return netip.AddrFrom4([4]byte{gid[10], gid[13], gid[14], gid[15]}), nil
		}
	}
	if a.Is6() && a.IsLinkLocalUnicast() && own.Is6() && !own.IsLinkLocalUnicast() {
		to := own.As16()
		copy(to[8:], gid[8:])
		return netip.AddrFrom16(to), nil
	}
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return a, failure.New("address", syscall.EINVAL, "GID %v names no host", rdma.GID(gid))
	case a.IsMulticast():
		return group(gid, own), nil
	case own.IsValid() && a.Is4() != own.Is4():
		return a, failure.New("address", syscall.EINVAL, "GID %v: the device at %v cannot reach it", rdma.GID(gid), own)
	}
	return a, nil
}

// group returns the address of the multicast group that a GID names. For one of the family that the address own does
// not have, it is a group of the device's family that all devices of this project derive from the GID.
func group(gid [16]byte, own netip.Addr) netip.Addr {
	a := netip.AddrFrom16(gid).Unmap()
	switch {
	case !a.IsMulticast() || !own.IsValid() || a.Is4() == own.Is4():
		return a
	case own.Is4(): // one of 239.192.0.0/14, which organizations assign as they like
		h := sha256.Sum256(gid[:])
		return netip.AddrFrom4([4]byte{239, 192 | h[0]&3, h[1], h[2]})
	}
	gid[0], gid[1] = 0xff, 0x0e // ff0e::ffff:a.b.c.d: RoCE's older form of an IPv4 group
	return netip.AddrFrom16(gid)
}

// errNoGRH is the error for an address without GIDs.
func errNoGRH(op string) error {
	return failure.New(op, syscall.EINVAL, "an address without a GRH: RoCE needs the GIDs of both ends: is_global and sgid_index, or -g 3 of ibverbs' programs")
}

// origin translates the address of a DCT or DCI, of which only the source counts: a DCT's peers
// find it, and the requests of a DCI name theirs. Programs leave the destination empty.
func (d *Device) origin(op string, a AHAttr) (rdma.AH, error) {
	if !a.IsGlobal {
		return rdma.AH{}, errNoGRH(op)
	}
	to, err := d.loopback(op, a)
	to.FlowLabel, to.HopLimit, to.TrafficClass, to.SL = a.FlowLabel, a.HopLimit, a.TrafficClass, a.SL
	return to, err
}

// address translates an address of the program into one of the engine.
func (d *Device) address(op string, a AHAttr) (rdma.AH, error) {
	if !a.IsGlobal {
		return rdma.AH{}, errNoGRH(op)
	}
	e, err := d.gid(op, a.SGIDIndex)
	if err != nil {
		return rdma.AH{}, err
	}
	own := d.local(&e)
	to, err := resolve(a.DGID, own)
	switch {
	case own.IsValid() && !e.RoCEv2 && err != nil, own.IsValid() && !e.RoCEv2 && to.IsLinkLocalUnicast() && to != own && !own.IsLinkLocalUnicast():
		// RoCE v1 has no UDP. Between two devices of this project its GIDs name the
		// addresses of RoCE v2; those of another device do not.
		return rdma.AH{}, failure.New(op, syscall.EOPNOTSUPP, "GID index %d is of RoCE v1, which has no UDP, and GID %v is none of another softmkey device: use one of RoCE v2, %d for example", a.SGIDIndex, rdma.GID(a.DGID), len(d.GIDs())-1)
	case err != nil:
		return rdma.AH{}, err
	}
	return rdma.AH{
		DGID: rdma.GIDOf(to), SGIDIndex: e.port, FlowLabel: a.FlowLabel, HopLimit: a.HopLimit, TrafficClass: a.TrafficClass, SL: a.SL,
		NextHop: a.MAC, SourcePort: a.UDPPort,
	}, nil
}

// loopback returns the device's own address as a destination.
func (d *Device) loopback(op string, a AHAttr) (rdma.AH, error) {
	e, err := d.gid(op, a.SGIDIndex)
	if err != nil {
		return rdma.AH{}, err
	}
	if own := d.local(&e); own.IsValid() {
		return rdma.AH{DGID: rdma.GIDOf(own), SGIDIndex: e.port}, nil
	}
	return rdma.AH{DGID: e.GID, SGIDIndex: e.port, NextHop: e.MAC}, nil
}

// GIDs returns the GID table. The returned slice never changes: a new table replaces it.
func (d *Device) GIDs() []GIDEntry { return *d.gids.Load() }
