package pci

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/packetconn"
)

// vectors is the number of MSI-X vectors. Vector 0 takes the control EQs, the others take
// those of completions.
const vectors = 64

// Config configures a device.
type Config struct {
	MAC net.HardwareAddr // of the port; 6 bytes, not a group's

	// Wrap adds something to the connection of each RoCE address, such as faults or a recording.
	// It may be nil. index is that of the address in the table.
	Wrap func(c packetconn.Conn, index int) packetconn.Conn

	// Tracer takes the records of the RDMA adapter, of the driver's commands and of the
	// Ethernet port's queues; nil: no trace.
	Tracer adapter.Tracer

	adapter.Options // of the RDMA adapter

	// Transmit sends a frame to the network. It must not block for long, and keeps nothing
	// of the frame.
	Transmit func(frame []byte)
}

// Device is a PCI function, a [transport.Device]. Its methods are safe for concurrent use.
type Device struct {
	cfg    Config
	opened time.Time
	dma    *dma // the guest's memory and interrupts; nil: never attached

	unplugged atomic.Bool // the port has no link

	mu        sync.Mutex // guards the following fields
	config    configSpace
	queueAddr uint64 // of the command queue; 0: there is none
	health    uint32 // syndrome; 0: healthy
	nicState  uint32 // of regQueueLow
	half      halfDoorbell
	fw        *firmware // nil: not attached
	pending   uint32    // commands that were rung
	working   bool      // a goroutine executes commands
	idle      sync.Cond // signalled when working turned false
}

// New makes a device.
func New(cfg Config) *Device {
	d := &Device{cfg: cfg, opened: time.Now()}
	d.idle.L = &d.mu
	d.config.init(vectors)
	return d
}

// Attach gives the device the memory and the interrupts of a guest. It is called before
// the first access, or after [Device.Reset] for another guest.
func (d *Device) Attach(mem *guestmem.Map, irq transport.Interrupts) {
	d.Reset()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dma = &dma{mem: mem, irq: irq}
	d.fw = newFirmware(d)
}

// Reset makes the device as it is after power-on. When it has returned, nothing that the
// guest asked for before touches its memory or raises interrupts.
func (d *Device) Reset() { d.reset(true) }

// reset is Reset, which keeps the configuration space unless config is set.
func (d *Device) reset(config bool) {
	d.mu.Lock()
	fw := d.fw
	d.interrupted()
	d.fw, d.pending, d.queueAddr = nil, 0, 0
	if config {
		d.config.init(vectors)
		d.masterChanged() // before the objects are destroyed: that may not be seen in memory
	}
	for d.working {
		d.idle.Wait()
	}
	d.mu.Unlock()
	if fw == nil {
		return
	}
	fw.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health, d.half = 0, halfDoorbell{}
	d.fw = newFirmware(d)
}

// masterChanged takes the bit Bus Master Enable of the configuration space. d.mu is held.
func (d *Device) masterChanged() {
	if d.dma != nil && d.dma.set(d.config.master()) && !d.config.master() {
		d.interrupted()
	}
}

// interrupted disables the interface if a driver has set the address of its commands. Linux's driver has no handler
// for resets: its health poller alone finds out, by the state of the interface, that the function has lost its objects
// or commands. d.mu is held.
func (d *Device) interrupted() {
	if d.queueAddr != 0 {
		d.nicState = nicDisabled
	}
}

// Close resets the device and detaches it from the guest.
func (d *Device) Close() {
	d.Reset()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fw = nil
}

func (d *Device) firmware() *firmware {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fw
}

// clock is the free-running counter of nanoseconds.
func (d *Device) clock() uint64 { return uint64(time.Since(d.opened)) }

// fail reports a fatal error in the health registers, which the driver polls.
func (d *Device) fail(syndrome uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health, d.nicState = syndrome, nicDisabled
}

// Receive takes a frame from the network. It keeps nothing of it.
func (d *Device) Receive(frame []byte) {
	fw := d.firmware()
	if fw == nil || d.unplugged.Load() {
		return
	}
	// RoCE packets for the function's addresses are taken before flow tables see them.
	if rdma, port := fw.hardware(); rdma.net != nil && !rdma.net.Receive(frame) {
		port.Receive(frame)
	}
}

func (d *Device) transmit(frame []byte) {
	if d.cfg.Transmit != nil && !d.unplugged.Load() {
		d.cfg.Transmit(frame)
	}
}
