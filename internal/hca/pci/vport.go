package pci

import (
	"bytes"
	"net"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// vport is the function's port as the driver sees it.
type vport struct {
	mac  net.HardwareAddr
	mtu  uint32
	roce bool

	unicast, multicast []net.HardwareAddr // addresses that the driver wants frames of
	promiscuous        uint32             // bits: unicast 4, multicast 2, all 1
}

func newVPort(mac net.HardwareAddr) vport {
	return vport{mac: mac, mtu: portMTU, unicast: []net.HardwareAddr{mac}}
}

// guid returns a number for the node and its port, which is not 0: it is made of the MAC
// address.
func (v *vport) guid() uint64 {
	m := v.mac
	return uint64(m[0])<<56 | uint64(m[1])<<48 | uint64(m[2])<<40 | 0xfffe<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

var _ = register(map[prm.Command]handler{
	prm.CmdQueryVPortState:   (*firmware).queryVPortState,
	prm.CmdQueryNICVPort:     (*firmware).queryNICVPort,
	prm.CmdModifyNICVPort:    (*firmware).modifyNICVPort,
	prm.CmdSetRoCEAddress:    (*firmware).setRoCEAddress,
	prm.CmdQueryPKey:         (*firmware).queryPKey,
	prm.CmdQueryVNICEnv:      func(f *firmware, c *call) error { return nil }, // faults of steering and queues, which are 0 here
	prm.CmdQueryVPortCounter: (*firmware).queryVPortCounter,
})

func (f *firmware) queryVPortState(c *call) error {
	c.set(0x78, 4, 1) // administratively up
	state := uint64(portStateUp)
	if f.dev.unplugged.Load() {
		state = portStateDown
	}
	c.set(0x7c, 4, state)
	return nil
}

// nicVPort is the offset of the context in the answer of QUERY_NIC_VPORT_CONTEXT, and
// nicVPortIn the one in MODIFY_NIC_VPORT_CONTEXT, in bits.
const (
	nicVPort   = 0x80
	nicVPortIn = 0x800
	macBytes   = 8 // of an entry of a list: 2 unused ones come first
)

// Fields of MODIFY_NIC_VPORT_CONTEXT.
const (
	nicRoCE        = 1 << 1
	nicAddresses   = 1 << 2
	nicPromiscuous = 1 << 4
	nicMTU         = 1 << 6
	nicKnown       = nicRoCE | nicAddresses | nicPromiscuous | nicMTU
)

// Lists of addresses.
const (
	listUnicast   = 0
	listMulticast = 1
	maxList       = 128
)

func (f *firmware) queryNICVPort(c *call) error {
	v := &f.vport
	set := func(off, n int, x uint64) { c.set(nicVPort+off, n, x) }
	set(0x130, 16, uint64(v.mtu))
	for _, off := range []int{0x140, 0x180, 0x1c0} { // system image, port, node
		set(off, 64, v.guid())
	}
	if v.roce {
		set(0x1f, 1, 1)
	}
	copyInto(c.Out, (nicVPort+0x7a0)/8+2, v.mac)
	set(0x780, 3, uint64(v.promiscuous))
	list := c.in32(0x65, 3)
	addrs, ok := map[uint32][]net.HardwareAddr{listUnicast: v.unicast, listMulticast: v.multicast}[list]
	if !ok {
		return nil // of VLANs: the guest's own filters do it
	}
	set(0x785, 3, uint64(list))
	if list == listUnicast {
		return nil // as the query of everything else
	}
	set(0x794, 12, uint64(len(addrs)))
	for i, a := range addrs {
		copyInto(c.Out, (nicVPort+0x800)/8+macBytes*i+2, a)
	}
	return nil
}

func (f *firmware) modifyNICVPort(c *call) error {
	const op = "MODIFY_NIC_VPORT_CONTEXT"
	v := &f.vport
	field := func(off, n int) uint32 { return c.in32(nicVPortIn+off, n) }
	selected := c.in32(0x60, 32)
	if bad := selected &^ nicKnown; bad != 0 {
		return failure.New(op, syscall.EINVAL, "fields %#x: %#x are not known", selected, bad)
	}
	if mtu := field(0x130, 16); selected&nicMTU != 0 && mtu > portMTU {
		return failure.New(op, syscall.EINVAL, "an MTU of %d bytes: at most %d", mtu, portMTU)
	}
	var addrs []net.HardwareAddr
	list := field(0x785, 3)
	if selected&nicAddresses != 0 {
		n := int(field(0x794, 12))
		at := (nicVPortIn + 0x800) / 8
		if n > maxList || len(c.In) < at+macBytes*n {
			return failure.New(op, syscall.EINVAL, "a list of %d addresses in %d bytes: at most %d", n, len(c.In), maxList)
		}
		for i := range n {
			addrs = append(addrs, bytes.Clone(c.In[at+macBytes*i+2:][:6]))
		}
	}
	if selected&nicMTU != 0 {
		v.mtu = field(0x130, 16)
	}
	if selected&nicRoCE != 0 {
		v.roce = field(0x1f, 1) != 0
	}
	if selected&nicPromiscuous != 0 {
		v.promiscuous = field(0x780, 3)
	}
	switch {
	case selected&nicAddresses == 0:
	case list == listUnicast:
		v.unicast = addrs
		if f.port != nil {
			f.port.SetAddresses(addrs)
		}
	case list == listMulticast:
		v.multicast = addrs
	}
	return nil
}

// queryPKey answers the table of partition keys: the default one in each entry.
func (f *firmware) queryPKey(c *call) error {
	for at := 0x10; at+4 <= len(c.Out); at += 4 {
		be.PutUint32(c.Out[at:], 0xffff)
	}
	return nil
}

// putPortCounters answers the register of port counters: the group of IEEE 802.3. The other
// groups count events that this device does not have, and are 0.
func (f *firmware) putPortCounters(c *call) {
	const reg, set = 0x80, 0x80 + 64
	if c.in32(reg+0x1a, 6) != 0 || f.port == nil {
		return
	}
	counts := f.port.Counters()
	sent, received := ether.Total(counts.Sent), ether.Total(counts.Received)
	for i, v := range []uint64{0: sent.Frames, 1: received.Frames, 4: sent.Bytes, 5: received.Bytes} {
		c.set(set+64*i, 64, v)
	}
}
