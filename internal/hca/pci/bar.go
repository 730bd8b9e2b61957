package pci

import (
	"time"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Offsets in BAR 0: the initialization segment, the UAR pages, and the device memory (see memic.go).
const (
	barSize        = 32 << 20
	barMSIXTable   = 0x2000 // the transport keeps the table
	barMSIXPending = 0x3000
	barFirstUAR    = 16 // pages before it hold the above
	barUARs        = memicStart / prm.UARSize

	regFWRevision   = 0x00
	regCmdIfRev     = 0x04
	regQueueHigh    = 0x10
	regQueueLow     = 0x14
	regDoorbell     = 0x18
	regInitializing = 0x1fc
	regHealth       = 0x200
	regHealthReset  = 0x238
	regHealthSynd   = 0x23c
	regTimerHigh    = 0x1000
	regTimerLow     = 0x1004
	regHealthCount  = 0x1010

	// The firmware's version 22.35.1012. It is that of a ConnectX-6 Dx.
	fwMajor, fwMinor, fwSub = 22, 35, 1012
	cmdIfRevision           = 5

	// Offsets in a UAR page, beside those of package prm: doorbells of event queues, with and without an arm.
	uarArmEQ = 0x40
	uarEQ    = 0x48

	queueLogEntries = 5
	queueLogStride  = 6
	queueAlignment  = 4096

	healthFirmwareError = 0x1    // syndrome: firmware internal error
	healthEQOverrun     = 0xc    // syndrome: an event queue of asynchronous events overran
	healthReset         = 1 << 7 // the driver is to reset the function (RFR)

	// The state of the function's interface, in regQueueLow. A fatal error disables it, and so does a reset or the end
	// of bus mastering under a driver, until a driver sets the address of its commands again.
	nicStateShift, nicStateMask = 8, 7
	nicDisabled                 = 1
)

// ReadConfig reads from the configuration space.
func (d *Device) ReadConfig(off int, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config.read(off, b)
}

// WriteConfig writes to the configuration space.
func (d *Device) WriteConfig(off int, b []byte) {
	d.mu.Lock()
	d.config.write(off, b)
	d.masterChanged()
	reset := d.config.resets()
	d.mu.Unlock()
	if reset {
		d.Reset()
	}
}

// BARSize returns the size of BAR 0.
func (d *Device) BARSize() uint64 { return barSize }

// Vectors returns the number of MSI-X vectors.
func (d *Device) Vectors() int { return vectors }

// ReadBAR reads from BAR 0.
func (d *Device) ReadBAR(off uint64, b []byte) {
	if off >= memicStart {
		if mem := d.deviceMemory(); mem == nil || mem.Read(off, b) != nil {
			clear(b)
		}
		return
	}
	for i := 0; i < len(b); {
		at := off + uint64(i)
		var w [4]byte
		be.PutUint32(w[:], d.register(at&^3))
		i += copy(b[i:], w[at&3:])
	}
}

// register returns the word of BAR 0 at an offset, which is aligned.
func (d *Device) register(off uint64) uint32 {
	switch off {
	case regFWRevision:
		return fwMinor<<16 | fwMajor
	case regCmdIfRev:
		return cmdIfRevision<<16 | fwSub
	case regTimerHigh:
		return uint32(d.clock() >> 32)
	case regTimerLow:
		return uint32(d.clock())
	case regHealthCount:
		return uint32(d.clock() / uint64(time.Millisecond)) // the driver polls every second
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch off {
	case regQueueHigh:
		return uint32(d.queueAddr >> 32)
	case regQueueLow:
		return uint32(d.queueAddr) | d.nicState<<nicStateShift | queueLogEntries<<4 | queueLogStride
	case regHealthReset:
		if d.health != 0 {
			return healthReset << 24
		}
	case regHealthSynd:
		return d.health << 16
	}
	return 0
}

// WriteBAR writes to BAR 0.
func (d *Device) WriteBAR(off uint64, b []byte) {
	if off >= memicStart {
		if mem := d.deviceMemory(); mem != nil {
			mem.Write(off, b) // what is not allocated takes nothing
		}
		return
	}
	if off >= barFirstUAR*prm.UARSize {
		d.writeUAR(off, b)
		return
	}
	if len(b) != 4 {
		return // registers are words
	}
	v := be.Uint32(b)
	switch off {
	case regQueueHigh:
		d.mu.Lock()
		d.queueAddr = uint64(v)<<32 | d.queueAddr&0xffffffff
		d.mu.Unlock()
	case regQueueLow:
		d.mu.Lock()
		addr, disabled := d.queueAddr&^0xffffffff|uint64(v&^(queueAlignment-1)), d.nicState == nicDisabled
		d.mu.Unlock()
		state := v >> nicStateShift & nicStateMask
		if disabled && state != nicDisabled {
			d.reset(false) // a driver that recovers from a fatal error begins anew
		}
		d.mu.Lock()
		d.queueAddr, d.nicState = addr, state
		d.mu.Unlock()
	case regDoorbell:
		d.ring(v)
	}
}

// writeUAR takes a doorbell. A doorbell of an event queue tells how many events the driver has handled. It arms nothing:
// the device raises the queue's vector for each event. A BlueFlame write copies a whole request, in pieces; only the
// start of a register is a doorbell.
func (d *Device) writeUAR(off uint64, b []byte) {
	page, at := off/prm.UARSize, off%prm.UARSize
	switch len(b) {
	case 4: // a guest of 32 bits writes halves; the second one completes the doorbell
		if at == uarArmEQ || at == uarEQ { // these are words
			d.doorbell(at, be.Uint32(b), 0)
			return
		}
		d.mu.Lock()
		if at&4 == 0 {
			d.half = halfDoorbell{page: page, at: at, high: be.Uint32(b)}
			d.mu.Unlock()
			return
		}
		h := d.half
		d.mu.Unlock()
		if h.page != page || h.at != at-4 {
			return
		}
		d.doorbell(at-4, h.high, be.Uint32(b))
	case 8:
		d.doorbell(at, be.Uint32(b), be.Uint32(b[4:]))
	}
}

// halfDoorbell is the first half of a doorbell.
type halfDoorbell struct {
	page, at uint64
	high     uint32
}

func (d *Device) doorbell(at uint64, high, low uint32) {
	fw := d.firmware()
	if fw == nil {
		return
	}
	// Each doorbell is a trap of the guest. Those of QPs have records of the adapter, with their requests.
	switch {
	case at == prm.UARArmCQ:
		d.trace("cq", low&0xffffff, "arm", nil)
		fw.ring(prm.UARArmCQ, uint64(high)<<32|uint64(low))
	case at == uarArmEQ:
		d.trace("eq", high>>24, "arm", nil)
		fw.eqs.consumed(high)
	case at == uarEQ:
		d.trace("eq", high>>24, "doorbell", nil)
		fw.eqs.consumed(high)
	case at >= prm.UARBlue && at%prm.UARBlueSize == 0: // kernels use the last registers, too
		fw.ring(prm.UARBlue, uint64(low))
	}
}
