package vfiouser

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
)

// vectors are the MSI-X vectors: the eventfds that the client waits on.
type vectors struct {
	mu      sync.Mutex          // guards signals
	signals []*transport.Signal // by vector; nil: the client takes no interrupts
}

func (v *vectors) init(n int) { v.signals = make([]*transport.Signal, n) }

// Raise implements transport.Interrupts.
func (v *vectors) Raise(vector int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vector >= 0 && vector < len(v.signals) {
		v.signals[vector].Send()
	}
}

// set gives a vector another eventfd, which it owns from then on; nil: none.
func (v *vectors) set(vector int, s *transport.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.signals[vector].Close()
	v.signals[vector] = s
}

func (v *vectors) close() {
	for i := range v.signals {
		v.set(i, nil)
	}
}

// setIRQs executes DEVICE_SET_IRQS: the client sets or takes away eventfds of MSI-X, or
// raises vectors by itself.
func (c *conn) setIRQs(b []byte) error {
	flags, index, start, count := le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])
	n := uint32(len(c.vectors.signals))
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
		c.vectors.close()
	case flags&irqDataNone != 0:
		for i := start; i < start+count; i++ {
			c.vectors.Raise(int(i))
		}
	case flags&irqDataEventfd != 0:
		if len(c.socket.FDs) != 0 && uint32(len(c.socket.FDs)) != count {
			return failure.New("vfio-user", syscall.EINVAL, "%d eventfds for %d vectors", len(c.socket.FDs), count)
		}
		for i := range count {
			var s *transport.Signal
			if len(c.socket.FDs) > 0 {
				var err error
				if s, err = c.socket.TakeSignal(int(i)); err != nil {
					return err
				}
			}
			c.vectors.set(int(start+i), s)
		}
	default:
		return failure.New("vfio-user", syscall.EINVAL, "flags %#x: vectors are set by eventfds", flags)
	}
	return nil
}
