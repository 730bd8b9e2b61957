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

func (f faults) FailDEK(device string, number uint32) error {
	return failure.New("dek fail", syscall.EOPNOTSUPP, "the keys of a virtual machine cannot be changed from outside")
}

func (f faults) SetLink(device string, up bool) error {
	if err := own("port", device); err != nil {
		return err
	}
	f.dev.SetLink(up)
	return nil
}

func (f faults) Fail(device string) error {
	if err := own("device fatal", device); err != nil {
		return err
	}
	f.dev.Fail()
	return nil
}

func (f faults) ChangeGIDs(string) error {
	return failure.New("gid change", syscall.EOPNOTSUPP, "the guest sets the GIDs of its adapter: change an address of its interface")
}

func (f faults) FailQP(device string, number uint32) error {
	if err := own("qp error", device); err != nil {
		return err
	}
	return f.dev.FailQP(number)
}

func (f faults) SetLoss(string, float64) error {
	return failure.New("loss", syscall.EOPNOTSUPP, "packets of a virtual machine's adapter are lost by the command line alone")
}

func (f faults) Clear(device string) error { return f.SetLink(device, true) }
