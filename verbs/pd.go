package verbs

import "github.com/softmkey/softmkey/internal/base/engine"

// PD is a protection domain: regions, keys and QPs reach each other only within one.
type PD struct {
	dev *Device
	e   *engine.PD
}

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	e, err := d.e.NewPD()
	if err != nil {
		return nil, err
	}
	return &PD{dev: d, e: e}, nil
}

// Device returns the device that the domain belongs to.
func (pd *PD) Device() *Device { return pd.dev }

// Close closes the domain. While objects of it exist that is EBUSY.
func (pd *PD) Close() error { return pd.e.Close() }
