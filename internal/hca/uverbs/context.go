//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// Constants of the device that the adapter does not report.
const (
	numPorts       = 1
	compVectors    = 2
	firstEQ        = 1 // the number of the event queue of vector 0
	bfRegSize      = 512
	cacheLine      = 64
	logUARSize     = 12
	qpTableSize    = 1 << 17
	reservedLKey   = 0x300
	inlineModeNone = 1 // MLX5_USER_INLINE_MODE_NONE

	optionalMRAccess = 1 // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS

	// comp_mask of mlx5_ib_alloc_ucontext_resp: DUMP_FILL_MKEY, whose key is that of null
	// regions, SQD2RTS, MKEY_UPDATE_TAG.
	ucontextMask = 1<<1 | 1<<3 | 1<<5

	ucontextRespSize = 72
)

// ucontext returns struct mlx5_ib_alloc_ucontext_resp. It reports no
// bfregs, so libmlx5 allocates every UAR with an ioctl.
func (f *File) ucontext() []byte {
	a := &f.dev.attr
	r := make(fields, ucontextRespSize)
	r.put32(0, qpTableSize)
	r.put32(4, bfRegSize)
	r.put32(12, cacheLine)
	r.put16(16, uint16(a.MaxSQDesc))
	r.put16(18, uint16(a.MaxRQDesc))
	r.put32(20, uint32(a.MaxSendBlocks))
	r.put32(24, uint32(a.MaxRQWR))
	r.put32(28, uint32(a.MaxSRQWR))
	r.put16(32, numPorts)
	r.put32(36, ucontextMask)
	r.put32(40, ucontextRespSize)
	r.put8(44, 1) // cqe_version
	r.put8(45, 3) // cmds_supp_uhw: query device, create AH
	r.put8(46, inlineModeNone)
	r.put8(47, 1) // clock_info_versions
	r.put32(56, logUARSize)
	r.put32(60, 1) // num_uars_per_page
	r.put32(68, adapter.NullKey)
	return r
}

func (c *command) getContext() error {
	const op = "get context"
	f := c.file
	if f.ctx != nil {
		return failure.New(op, syscall.EINVAL, "the descriptor has a context already")
	}
	page, err := openClock(int(f.fd.Fd()))
	if err != nil {
		return err
	}
	f.clock = page
	f.ctx = f.dev.adapter.NewContext(f.mem, f)
	for vector := range uint32(compVectors) {
		f.ctx.AddEQ(firstEQ + vector)
	}
	f.dev.add(f, f.ctx)
	f.isolate()
	return outputs(
		c.output32(getContextVectors, compVectors),
		c.output64(getContextSupport, optionalMRAccess),
		c.output(uhwOut, f.ucontext()))
}

func (c *command) queryContext() error {
	return outputs(
		c.output32(queryContextVectors, compVectors),
		c.output64(queryContextSupport, optionalMRAccess),
		c.output(queryContextDriver, c.file.ucontext()))
}

// Values that QUERY_PORT reports for an Ethernet port that is up.
const (
	portDown      = 1
	portActive    = 4
	physDisabled  = 3
	physLinkUp    = 5
	linkEthernet  = 2
	width4X       = 2
	speedEDR      = 32
	capCM         = 1 << 16
	capIPBased    = 1 << 26
	grhRequired   = 1
	pkeyTableSize = 1
)

func (c *command) queryPort() error {
	port, err := c.input(queryPortNumber)
	if err != nil {
		return err
	}
	if port.u8(0) != 1 {
		return failure.New("query port", syscall.EINVAL, "port %d: the device has port 1 only", port.u8(0))
	}
	a := &c.file.dev.attr
	r := make(fields, 60) // struct ib_uverbs_query_port_resp_ex
	r.put32(0, capCM|capIPBased)
	r.put32(4, a.MaxMsgSize)
	r.put32(12, uint32(c.file.dev.adapter.Engine().Port().Counters().BadQKey))
	r.put32(16, adapter.GIDTableSize)
	r.put16(20, pkeyTableSize)
	state, phys := c.file.dev.portState()
	r.put8(26, state)
	r.put8(27, uint8(a.MaxMTU))
	r.put8(28, uint8(a.ActiveMTU))
	r.put8(34, width4X)
	r.put8(35, speedEDR)
	r.put8(36, phys)
	r.put8(37, linkEthernet)
	r.put8(38, grhRequired)
	return c.output(queryPortAnswer, r)
}

// portState returns the states of the port: its own (enum ibv_port_state) and that of its link.
func (d *Device) portState() (state, phys uint8) {
	if d.adapter.LinkUp() {
		return portActive, physLinkUp
	}
	return portDown, physDisabled
}

const gidEntrySize = 32

// gidEntry returns struct ib_uverbs_gid_entry.
func (d *Device) gidEntry(i int, g adapter.GIDEntry) []byte {
	e := make(fields, gidEntrySize)
	copy(e, g.GID[:])
	e.put32(16, uint32(i))
	e.put32(20, 1)
	e.put32(24, gidType(g))
	e.put32(28, uint32(d.Interface().Index))
	return e
}

// gidType returns enum ib_uverbs_gid_type.
func gidType(g adapter.GIDEntry) uint32 {
	if g.RoCEv2 {
		return 2
	}
	return 1
}

// noFlags refuses flags in a command that has none.
func (c *command) noFlags(op string, id uint16) error {
	b, err := c.input(id)
	if err != nil || len(b) < 4 || b.u32(0) == 0 {
		return err
	}
	return failure.New(op, syscall.EINVAL, "flags %#x: must be 0", b.u32(0))
}

func (c *command) queryGIDTable() error {
	const op = "query GID table"
	size, err := c.input(gidTableEntrySize)
	if err == nil {
		err = c.noFlags(op, gidTableFlags)
	}
	if err != nil {
		return err
	}
	entry := int(size.u64(0))
	if entry < gidEntrySize {
		return failure.New(op, syscall.EOPNOTSUPP, "entries of %d bytes: they have %d", entry, gidEntrySize)
	}
	gids, n := c.file.dev.adapter.GIDs(), 0
	if room := c.room(gidTableEntries) / entry; room < len(gids) {
		return failure.New(op, syscall.EINVAL, "room for %d entries: the table has %d", room, len(gids))
	}
	var table []byte
	for i, g := range gids {
		if g.GID == [16]byte{} {
			continue
		}
		e := make([]byte, entry)
		copy(e, c.file.dev.gidEntry(i, g))
		table = append(table, e...)
		n++
	}
	return outputs(c.output(gidTableEntries, table), c.output64(gidTableCount, uint64(n)))
}

func (c *command) queryGIDEntry() error {
	const op = "query GID entry"
	v, err := c.inputs(gidEntryPort, gidEntryIndex)
	if err == nil {
		err = c.noFlags(op, gidEntryFlags)
	}
	if err != nil {
		return err
	}
	port, i := v[0].u32(0), v[1].u32(0)
	if port != 1 {
		return failure.New(op, syscall.EINVAL, "port %d: the device has port 1 only", port)
	}
	if i >= adapter.GIDTableSize {
		return failure.New(op, syscall.EINVAL, "index %d: the table has %d entries", i, adapter.GIDTableSize)
	}
	gids := c.file.dev.adapter.GIDs()
	if int(i) >= len(gids) || gids[i].GID == [16]byte{} {
		return failure.New(op, syscall.ENODATA, "index %d is empty", i)
	}
	return c.output(gidEntryAnswer, c.file.dev.gidEntry(int(i), gids[i]))
}

// General capabilities of on-demand paging (enum ibv_odp_general_caps).
const (
	odpSupport  = 1 << 0
	odpImplicit = 1 << 1
)

// queryDevice answers the extended QUERY_DEVICE.
func (c *command) queryDevice(in fields) error {
	a := &c.file.dev.attr
	r := make(fields, 304) // struct ib_uverbs_ex_query_device_resp
	r.put64(0, firmware(a.FWVersion))
	putBE64(r[8:], a.NodeGUID)
	putBE64(r[16:], a.SysImageGUID)
	r.put64(24, a.MaxMRSize)
	r.put64(32, a.PageSizeCap)
	for i, v := range []int{
		int(a.VendorID), int(a.VendorPartID), int(a.HWVersion), a.MaxQP, a.MaxQPWR, int(uint32(a.DeviceCapFlags)),
		a.MaxSGE, a.MaxSGERead, a.MaxCQ, a.MaxCQE, a.MaxMR, a.MaxPD, a.MaxQPRdAtom, 0, a.MaxResRdAtom,
		a.MaxQPInitRdAtom, 0, a.AtomicCap, 0, 0, a.MaxMW, 0, 0, a.MaxMcastGroups, a.MaxMcastQPAttach,
		a.MaxMcastGroups * a.MaxMcastQPAttach, a.MaxAH, 0, 0, a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE,
	} {
		r.put32(40+4*i, uint32(v))
	}
	r.put16(168, uint16(a.MaxPKeys))
	r.put8(170, uint8(a.LocalCAAckDelay))
	r.put8(171, numPorts)
	// comp_mask 0 at 176; response_length at 180.
	r.put32(180, uint32(min(len(r), c.room(coreOut))))
	r.put64(184, odpSupport|odpImplicit)
	r.put32(192, uint32(a.ODP.RC))
	r.put32(196, uint32(a.ODP.UC))
	r.put32(200, uint32(a.ODP.UD))
	r.put32(296, uint32(a.ODP.XRC))
	r.put64(208, a.TimestampMask)
	r.put64(216, a.CoreClockKHz)
	r.put64(224, a.DeviceCapFlags)
	r.put16(280, mostModerateCount)
	r.put16(282, mostModeratePeriod)
	r.put64(288, mostDeviceMem)
	uhw := make(fields, 104) // struct mlx5_ib_query_device_resp: no offload of Ethernet
	uhw.put32(4, uint32(min(len(uhw), c.room(uhwOut))))
	return outputs(c.output(coreOut, r), c.output(uhwOut, uhw))
}
