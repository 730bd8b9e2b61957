package nvme

// ErrorEntry is an entry of the error log (Base 5.14.1.1).
type ErrorEntry struct {
	Count  uint64
	SQID   uint16
	ID     uint16 // of the command
	Status Status
	LBA    uint64 // first block with the error
	NSID   uint32
}

// Append appends the entry's 64 bytes.
func (e *ErrorEntry) Append(b []byte) []byte {
	var x [64]byte
	le.PutUint64(x[:], e.Count)
	le.PutUint16(x[8:], e.SQID)
	le.PutUint16(x[10:], e.ID)
	le.PutUint16(x[12:], uint16(e.Status)<<1)
	le.PutUint16(x[14:], 0xffff) // the error does not belong to a byte of the command
	le.PutUint64(x[16:], e.LBA)
	le.PutUint32(x[24:], e.NSID)
	x[29] = 1 // TRTYPE: RDMA
	return append(b, x[:]...)
}

// Health is the log page SMART / health information (Base 5.14.1.2).
type Health struct {
	BytesRead, BytesWritten uint64
	Reads, Writes           uint64 // commands
	MediaErrors, Errors     uint64
	PowerOnHours            uint64
	Temperature             uint16 // composite temperature in kelvins
	Beyond                  bool   // the temperature is beyond a threshold, in either direction
}

// Append appends the page's 512 bytes.
func (h *Health) Append(dst []byte) []byte {
	b := make([]byte, 512)
	if h.Beyond {
		b[0] = 1 << 1
	}
	le.PutUint16(b[1:], h.Temperature)
	b[3], b[4] = 100, 10 // available spare and its threshold
	for _, f := range []struct {
		off   int
		value uint64
	}{
		{32, units(h.BytesRead)}, {48, units(h.BytesWritten)}, {64, h.Reads}, {80, h.Writes},
		{128, h.PowerOnHours}, {160, h.MediaErrors}, {176, h.Errors},
	} {
		le.PutUint64(b[f.off:], f.value)
	}
	return append(dst, b...)
}

// units returns the number of thousands of 512 bytes, rounded up.
func units(n uint64) uint64 { return n/(512*1000) + min(n%(512*1000), 1) }

// AppendFirmware appends the firmware slot log, 512 bytes (Base 5.14.1.3).
func AppendFirmware(dst []byte, revision string) []byte {
	b := make([]byte, 512)
	b[0] = 1 // slot 1 is active
	pad(b[8:16], revision)
	return append(dst, b...)
}

// Effect is an entry of the effects log.
type Effect struct {
	Opcode Opcode
	Change bool // the command changes blocks
}

// AppendEffects appends the log page of supported commands and their effects, 4096 bytes (Base
// 5.14.1.5).
func AppendEffects(dst []byte, admin, io []Effect) []byte {
	b := make([]byte, 4096)
	for i, list := range [][]Effect{admin, io} {
		for _, e := range list {
			v := uint32(1) // supported
			if e.Change {
				v |= 1 << 1 // LBCC
			}
			le.PutUint32(b[1024*i+4*int(e.Opcode):], v)
		}
	}
	return append(dst, b...)
}

// DiscoveryEntry is an entry of the discovery log: a subsystem at an address of RDMA (Fabrics 5.3).
type DiscoveryEntry struct {
	Subsystem string
	Address   string
	Port      string
	IPv6      bool
	PortID    uint16
}

// AppendDiscovery appends the discovery log.
func AppendDiscovery(dst []byte, generation uint64, entries []DiscoveryEntry) []byte {
	b := make([]byte, 1024*(1+len(entries)))
	le.PutUint64(b, generation)
	le.PutUint64(b[8:], uint64(len(entries)))
	for i, e := range entries {
		x := b[1024*(1+i):]
		x[0], x[1], x[2], x[3] = 1, 1, 2, 2 // RDMA, IPv4, an NVM subsystem, no secure channel required
		if e.IPv6 {
			x[1] = 2
		}
		le.PutUint16(x[4:], e.PortID)
		le.PutUint16(x[6:], AnyController)
		le.PutUint16(x[8:], AdminQueueSize)
		pad(x[32:64], e.Port)
		copy(x[256:256+NQNSize], e.Subsystem)
		pad(x[512:768], e.Address)
		x[768], x[769], x[770] = 1, 4, 1 // TSAS: reliable connections, RoCEv2, rdma_cm
	}
	return append(dst, b...)
}

// AdminQueueSize is the length of an admin queue (Fabrics 1.5.3).
const AdminQueueSize = 32
