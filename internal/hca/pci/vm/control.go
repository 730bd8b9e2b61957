//go:build linux

package vm

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/control"
	"github.com/softmkey/softmkey/internal/hca/pci"
)

// faults executes the requests of a control socket on a guest's adapter.
type faults struct{ dev *pci.Device }

// own refuses the name of a device: an adapter has none.
func own(op, name string) error {
	if name != "" {
		return failure.New(op, syscall.ENOENT, "device %q does not exist: the adapter of a virtual machine has no name here", name)
	}
	return nil
}

// DEKs implements control.Devices. Which keys a guest has made is the guest's own affair.
func (f faults) DEKs() []control.DEK { return nil }

// Change implements control.Devices.
func (f faults) Change(q *control.Request) error {
	switch q.Op {
	case control.FailDEK:
		return failure.New("dek fail", syscall.EOPNOTSUPP, "the keys of a virtual machine cannot be changed from outside")
	case control.GIDChange:
		return failure.New("gid change", syscall.EOPNOTSUPP, "the guest sets the GIDs of its adapter: change an address of its interface")
	case control.Loss:
		return failure.New("loss", syscall.EOPNOTSUPP, "packets of a virtual machine's adapter are lost by the command line alone")
	case control.DeviceFatal:
		if err := own("device fatal", q.Device); err != nil {
			return err
		}
		f.dev.Fail()
		return nil
	case control.QPError:
		if err := own("qp error", q.Device); err != nil {
			return err
		}
		return f.dev.FailQP(q.ID)
	}
	if err := own("port", q.Device); err != nil {
		return err
	}
	f.dev.SetLink(q.Op != control.PortDown) // Clear ends what PortDown has begun
	return nil
}
