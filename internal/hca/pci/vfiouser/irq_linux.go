package vfiouser

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// vectors are the MSI-X vectors: the eventfds that the client waits on.
type vectors struct {
	mu  sync.Mutex // guards fds
	fds []int      // by vector; -1: the client takes no interrupts
}

func (v *vectors) init(n int) {
	v.fds = make([]int, n)
	for i := range v.fds {
		v.fds[i] = -1
	}
}

// Raise implements transport.Interrupts. The write cannot block: a counter that is full is as good as
// a larger one.
func (v *vectors) Raise(vector int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vector >= 0 && vector < len(v.fds) && v.fds[vector] >= 0 {
		one := [8]byte{1}
		unix.Write(v.fds[vector], one[:])
	}
}

// set gives a vector another eventfd, which it owns from then on; -1: none.
func (v *vectors) set(vector, fd int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fds[vector] >= 0 {
		unix.Close(v.fds[vector])
	}
	v.fds[vector] = fd
}

func (v *vectors) close() {
	for i := range v.fds {
		v.set(i, -1)
	}
}

// setIRQs executes DEVICE_SET_IRQS: the client sets or takes away eventfds of MSI-X, or
// raises vectors by itself.
func (c *conn) setIRQs(b []byte) error {
	if err := short(b, 20); err != nil {
		return err
	}
	flags, index, start, count := le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])
	n := uint32(len(c.vectors.fds))
	switch {
	case index >= interrupts:
		return failure.New("vfio-user", syscall.EINVAL, "interrupt index %d: the device has %d", index, interrupts)
	case index != irqMSIX:
		if count != 0 && flags&irqDataEventfd != 0 && len(c.socket.FDs) > 0 {
			return failure.New("vfio-user", syscall.EINVAL, "interrupt index %d has no interrupts", index)
		}
		return nil
	case start > n || count > n-start:
		return failure.New("vfio-user", syscall.EINVAL, "MSI-X vectors %d to %d: the device has %d", start, start+count, n)
	case flags&irqActionTrigger == 0:
		return failure.New("vfio-user", syscall.EINVAL, "flags %#x: MSI-X vectors cannot be masked here", flags)
	case flags&irqDataNone != 0 && count == 0:
		for i := range c.vectors.fds {
			c.vectors.set(i, -1)
		}
	case flags&irqDataNone != 0:
		for i := start; i < start+count; i++ {
			c.vectors.Raise(int(i))
		}
	case flags&irqDataEventfd != 0:
		if len(c.socket.FDs) != 0 && uint32(len(c.socket.FDs)) != count {
			return failure.New("vfio-user", syscall.EINVAL, "%d eventfds for %d vectors", len(c.socket.FDs), count)
		}
		for i := range count {
			fd := -1
			if len(c.socket.FDs) > 0 {
				var err error
				if fd, err = c.socket.Take(int(i)); err != nil {
					return err
				}
			}
			c.vectors.set(int(start+i), fd)
		}
	default:
		return failure.New("vfio-user", syscall.EINVAL, "flags %#x: vectors are set by eventfds", flags)
	}
	return nil
}
