package pci

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/framenet"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/packetconn"
)

// gidEntries is the size of the table of RoCE addresses.
const gidEntries = 256

// Versions of RoCE in the table of RoCE addresses.
const (
	roceV1 = 0
	roceV2 = 2
)

// open opens the adapter, with an empty table of addresses.
func (r *rdmaState) open(f *firmware) (err error) {
	r.net = framenet.New(f.dev.transmit)
	if r.dev, err = adapter.Open(adapter.Config{Conn: r.net.Absent(), Tracer: f.dev.cfg.Tracer, Options: f.dev.cfg.Options, Opened: f.dev.opened}); err != nil {
		return err
	}
	for i := range gidEntries {
		if err := r.dev.SetGID(i, adapter.GIDEntry{}, r.net.Absent()); err != nil {
			return err
		}
	}
	r.ctx = r.dev.NewGuest(f.dev.dma, f.memic, events{f})
	return nil
}

// setRoCEAddress sets an entry of the table of RoCE addresses, or removes it.
func (f *firmware) setRoCEAddress(c *call) error {
	const op = "SET_ROCE_ADDRESS"
	index := c.in32(0x40, 16)
	if index >= gidEntries || len(c.In) < 0x30 {
		return failure.New(op, syscall.EINVAL, "entry %d in %d bytes: the table has %d entries", index, len(c.In), gidEntries)
	}
	in := c.In[0x10:0x30]
	version := prm.Bits(in, 0xd8, 8)
	if version != roceV1 && version != roceV2 {
		return failure.New(op, syscall.EINVAL, "RoCE version %d: must be %d or %d", version, roceV1, roceV2)
	}
	e := adapter.GIDEntry{GID: [16]byte(in), MAC: [6]byte(in[0x12:]), RoCEv2: version == roceV2}
	if prm.Bits(in, 0x83, 1) != 0 {
		e.VLAN = uint16(prm.Bits(in, 0x84, 12))
	}
	// The old entry goes first: the new one may have its address.
	if err := f.rdma.dev.SetGID(int(index), adapter.GIDEntry{}, f.rdma.net.Absent()); err != nil || e.GID == [16]byte{} {
		return err
	}
	listening, err := f.rdma.net.Listen(framenet.Address{IP: netip.AddrFrom16(e.GID).Unmap(), MAC: e.MAC, VLAN: int(e.VLAN), V1: !e.RoCEv2})
	if err != nil {
		return err
	}
	var conn packetconn.Conn = listening
	if wrap := f.dev.cfg.Wrap; wrap != nil {
		conn = wrap(conn, int(index))
	}
	if err := f.rdma.dev.SetGID(int(index), e, conn); err != nil {
		conn.Close()
		return err
	}
	return nil
}
