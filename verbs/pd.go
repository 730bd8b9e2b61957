package verbs

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// PD is a protection domain: regions, keys and QPs reach each other only within
// one.
type PD struct {
	dev   *Device
	users users
}

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	if err := d.users.enter("open a PD", "PD"); err != nil {
		return nil, err
	}
	return &PD{dev: d}, nil
}

// Device returns the device that the domain belongs to.
func (pd *PD) Device() *Device { return pd.dev }

// Close gives the domain back. While something of it exists that is EBUSY.
func (pd *PD) Close() error {
	first, err := pd.users.close("close the PD")
	if first {
		pd.dev.users.leave("PD")
	}
	return err
}

func (pd *PD) enter(kind string) error { return pd.users.enter("use the PD", kind) }
func (pd *PD) leave(kind string)       { pd.users.leave(kind) }

// users counts what exists of an object, by kind, so that closing it can say
// what is still in use. Once closed it takes no more.
type users struct {
	mu     sync.Mutex
	closed bool
	counts map[string]int
	total  int
}

// enter counts one more of a kind; on a closed object that is EINVAL.
func (u *users) enter(op, kind string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return operr.New(op, syscall.EINVAL, "it was closed")
	}
	if u.counts == nil {
		u.counts = make(map[string]int, 1)
	}
	u.counts[kind]++
	u.total++
	return nil
}

func (u *users) leave(kind string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts[kind]--
	u.total--
}

// close marks the object closed if nothing of it exists. first is true for the
// call that did; closing twice is no error.
func (u *users) close(op string) (first bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total > 0 {
		return false, operr.New(op, syscall.EBUSY, "still in use: %s", list(u.counts))
	}
	first = !u.closed
	u.closed = true
	return first, nil
}
