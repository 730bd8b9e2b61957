package verbs

import (
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
)

// PD is a protection domain. Regions, keys and QPs can be used together only if they
// belong to the same domain.
type PD struct {
	dev *Device
	e   *engine.PD
}

// NewPD creates a protection domain.
func (d *Device) NewPD() (*PD, error) {
	if d.e == nil {
		return nil, failure.Zero("create a PD", "Open")
	}
	e, err := d.e.NewPD()
	if err != nil {
		return nil, err
	}
	return &PD{dev: d, e: e}, nil
}

// ProtectionDomain implements dek.PD.
func (pd *PD) ProtectionDomain() {}

// Device returns the device that the domain belongs to.
func (pd *PD) Device() *Device { return pd.dev }

// Close closes the domain. It returns EBUSY while objects of the domain exist.
func (pd *PD) Close() error {
	return do(pd.e, "close the PD", "Device.NewPD", (*engine.PD).Close)
}
