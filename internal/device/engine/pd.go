package engine

import "sync"

// PD is a protection domain: regions, keys and QPs can be used together only
// within one PD.
type PD struct {
	dev       *Device
	users     Users
	touched   touchedQPs
	quiescing sync.Mutex // serialises quiesce
}

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	if err := d.users.Enter("open the PD", "PD"); err != nil {
		return nil, err
	}
	return &PD{dev: d}, nil
}

// Device returns the device that the domain belongs to.
func (pd *PD) Device() *Device { return pd.dev }

// ProtectionDomain implements dek.PD.
func (pd *PD) ProtectionDomain() {}

// Users returns the count of the domain's users, which a front's own objects join.
func (pd *PD) Users() *Users { return &pd.users }

// Close closes the domain. While the domain has users, it returns EBUSY and names them.
func (pd *PD) Close() error {
	first, err := pd.users.Close("close the PD", func(*Users) []uint32 { return pd.dev.QPs(func(qp *QP) bool { return qp.pd == pd }) })
	if first {
		pd.dev.users.Leave("PD")
	}
	return err
}
