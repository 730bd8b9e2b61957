package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// The event that the link of a port went or came, and its subtypes.
const (
	eventPort     = 0x09
	portDown      = 1
	portActive    = 4
	offEventPort  = 8 // of its data; the port's number is in the upper half of the byte
	firstPort     = 1 << 4
	portStateDown = 0
	portStateUp   = 1
)

// SetLink takes the port's link away or gives it back, as a cable does: nothing is sent or received without
// it, and the driver gets an event. It outlasts a reset and the guest.
func (d *Device) SetLink(up bool) {
	if d.unplugged.Swap(!up) == !up {
		return
	}
	fw := d.firmware()
	if fw == nil {
		return
	}
	var data [32]byte
	data[offEventPort] = firstPort
	sub := uint8(portDown)
	if up {
		sub = portActive
	}
	fw.eqs.event(eventPort, sub, data[:])
}

// Fail reports a fatal error in the health registers, which the driver polls: it resets the function and
// makes its objects anew.
func (d *Device) Fail() { d.fail(healthFirmwareError) }

// FailQP puts a queue pair of the guest into ERR. ENOENT: no queue pair has the number.
func (d *Device) FailQP(number uint32) error {
	if fw := d.firmware(); fw != nil {
		if rdma, _ := fw.hardware(); rdma.dev != nil {
			return rdma.dev.FailQP(number)
		}
	}
	return failure.New("qp error", syscall.ENOENT, "QP %#x does not exist", number)
}
