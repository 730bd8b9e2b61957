package verbs

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/sig"
)

// GID is a global identifier: an IPv6 address, or an IPv4 address a.b.c.d as
// ::ffff:a.b.c.d.
type GID [16]byte

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address that the GID stands for.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the GID as verbs tools print it.
func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// DeviceAttr are the limits of a device (struct ibv_device_attr).
type DeviceAttr struct {
	MaxQPWR        int // requests in a queue
	MaxSGE         int // entries of a request's list
	MaxInlineData  int // bytes of inline data, and of a configuration
	MaxCQE         int // completions in a CQ
	MaxMR          int // regions and memory keys
	MaxMKeyEntries int // entries of a key's layout
	MaxRdAtomic    int // reads and atomics on their way, as requester and as responder
	MaxMessage     uint32
	AtomicHCA      bool // atomics exclude each other within the device
}

// Attr returns the device's limits.
func (d *Device) Attr() DeviceAttr {
	return DeviceAttr{
		MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxInlineData: maxInline, MaxCQE: maxCQE, MaxMR: maxKeys,
		MaxMKeyEntries: maxMKeyEntries, MaxRdAtomic: maxRdAtomic, MaxMessage: roce.MaxMessage, AtomicHCA: true,
	}
}

// PortAttr describes the device's one port (struct ibv_port_attr).
type PortAttr struct {
	Active    bool
	MaxMTU    MTU
	ActiveMTU MTU // the largest path MTU that the network carries
	GIDs      int // length of the GID table
}

// PortAttr returns the description of the port.
func (d *Device) PortAttr() PortAttr {
	return PortAttr{Active: true, MaxMTU: MTU4096, ActiveMTU: d.activeMTU(), GIDs: 1}
}

// activeMTU returns the largest path MTU of which packets with the longest headers fit
// the interface, in the same way as the kernel's drivers do it.
func (d *Device) activeMTU() MTU {
	// IPv6, UDP, BTH, XRC's and the atomics' headers, ICRC.
	const headers = 40 + 8 + 12 + 4 + 28 + 4
	mtu := d.port.Caps().MTU
	for m := MTU4096; m > MTU256; m-- {
		if mtu == 0 || mtu >= m.Bytes()+headers {
			return m
		}
	}
	return MTU256
}

// GID returns an entry of the GID table. The device has one, of its address.
func (d *Device) GID(index int) (GID, error) {
	if index != 0 {
		return GID{}, operr.New("query GID", syscall.EINVAL, "index %d: the table has 1 entry", index)
	}
	return GIDOf(d.addr), nil
}

// SignatureCaps tells which block signatures a device can do (struct
// mlx5dv_sig_caps).
type SignatureCaps struct {
	BlockSizes []int
	Types      []sig.Type
	Guards     []sig.Guard // of a T10-DIF
	Failed     []sig.Type  // failed the known-answer tests and cannot be used
}

// SignatureCaps returns what block signatures the device can do.
func (d *Device) SignatureCaps() SignatureCaps {
	c := SignatureCaps{
		BlockSizes: sig.KeyBlockSizes(),
		Guards:     []sig.Guard{sig.GuardCRC, sig.GuardCSUM},
		Failed:     d.crypto.tests.signatures,
	}
	for t := sig.T10DIF; t <= sig.CRC64; t++ {
		if !d.crypto.tests.failed(t) {
			c.Types = append(c.Types, t)
		}
	}
	return c
}
