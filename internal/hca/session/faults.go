//go:build linux && (amd64 || arm64)

package session

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/control"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
)

// deviceFaults is the state of a device that the control socket and the device's network interface
// change.
type deviceFaults struct {
	device  *uverbs.Device
	service *cmcore.Service
	index   int         // of the device
	follow  bool        // see Device.Follow
	conn    *netem.Conn // nil: packets cannot be lost on demand
	usual   *Faults     // the faults of conn until the control socket asks for others

	mu       sync.Mutex // held during a change, so that changes have an order
	unplug   bool       // the control socket has taken the link away
	linkless bool       // the network interface has no link
}

// setLink gives the port the state that follows from the fields.
func (f *deviceFaults) setLink(root string) error {
	up := !f.unplug && !f.linkless
	a := f.device.Adapter()
	if !a.SetLink(up) {
		return nil
	}
	err := f.device.Changed(root)
	if up {
		a.Raise(ibv.EventPortActive)
	} else {
		a.Raise(ibv.EventPortErr)
	}
	return err
}

// moveGIDs moves the GIDs of the device's address, or only moves them back.
func (f *deviceFaults) moveGIDs(r *run, back bool) error {
	a := f.device.Adapter()
	if !a.MoveGIDs(back) {
		return nil
	}
	return f.tellGIDs(r)
}

// tellGIDs writes a GID table that has changed to the files of sysfs and to rdma_cm, and raises the event GID_CHANGE
// for programs.
func (f *deviceFaults) tellGIDs(r *run) error {
	err := f.device.Changed(r.root)
	r.manager.SetGIDs(f.service, connectable(f.device.Adapter()))
	f.device.Adapter().Raise(ibv.EventGIDChange)
	return err
}

// setAddresses gives the device the addresses of its network interface that it may have.
func (f *deviceFaults) setAddresses(r *run, present []netip.Addr) {
	a := f.device.Adapter()
	own, has, changed := a.Engine().Addr().WithZone(""), a.Addresses(), false
	for _, addr := range has {
		if !slices.Contains(present, addr) {
			a.RemoveAddress(addr)
			changed = true
		}
	}
	for _, addr := range present {
		if slices.Contains(has, addr) || addr != own && (!f.follow || addr.IsLinkLocalUnicast()) {
			continue
		}
		err := a.AddAddress(addr, func() (packetconn.Conn, error) { return r.listenBeside(addr, f.index) })
		if changed = changed || err == nil; err != nil {
			r.refused(0, "add GID", err)
		}
	}
	if changed {
		f.tellGIDs(r) // an error: the tree is being removed
	}
}

// beside is the network of an address that a device has besides its own. The thread of the device waits for
// one descriptor; a goroutine of the port receives from this one.
type beside struct{ packetconn.Conn }

func (b beside) Unwrap() packetconn.Conn { return b.Conn }

// listenBeside opens the socket of one more address of a device. The address is not shared with other runs: a
// queue pair's number names its run at the device's own address only.
func (r *run) listenBeside(addr netip.Addr, device int) (packetconn.Conn, error) {
	conn, err := udp.Listen(netip.AddrPortFrom(addr, roce.UDPPort), nil)
	if err != nil {
		return nil, err
	}
	return beside{Network(conn, r.recorder, r.cfg.Faults, device)}, nil
}

// connectable returns the addresses of a device by GID index, the invalid address for indexes that the
// connection manager cannot use.
func connectable(a *adapter.Device) (list []netip.Addr) {
	own := a.Engine().Addr().Unmap().WithZone("")
	for _, g := range a.GIDs() {
		addr := netip.Addr{}
		// The link-local GIDs in front are no addresses of the host, unless that is its own.
		if to := netip.AddrFrom16(g.GID).Unmap(); g.RoCEv2 && (to == own || !to.IsLinkLocalUnicast() && !to.IsUnspecified()) {
			addr = to
		}
		list = append(list, addr)
	}
	return list
}

// each changes the device with a name, or all devices if it is empty.
func (r *run) each(op, name string, change func(*deviceFaults) error) error {
	r.mu.RLock()
	all := r.faults
	r.mu.RUnlock()
	found := name == ""
	for _, f := range all {
		if name != "" && f.device.Name() != name {
			continue
		}
		found = true
		f.mu.Lock()
		err := change(f)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if !found {
		return failure.New(op, syscall.ENOENT, "device %q does not exist", name)
	}
	return nil
}

// Change implements control.Devices.
func (r *run) Change(q *control.Request) error {
	switch q.Op {
	case control.FailDEK:
		return r.failDEK(q.Device, q.ID)
	case control.PortDown, control.PortUp:
		return r.each("port", q.Device, func(f *deviceFaults) error {
			f.unplug = q.Op == control.PortDown
			return f.setLink(r.root)
		})
	case control.DeviceFatal:
		return r.each("device fatal", q.Device, func(f *deviceFaults) error {
			f.device.Fail()
			r.manager.Removed(f.service)
			return nil
		})
	case control.GIDChange:
		return r.each("gid change", q.Device, func(f *deviceFaults) error { return f.moveGIDs(r, false) })
	case control.QPError:
		return r.failQP(q.Device, q.ID)
	case control.Loss:
		return r.each("loss", q.Device, func(f *deviceFaults) error { return f.setLoss(q.Share) })
	}
	return r.each("clear", q.Device, func(f *deviceFaults) error {
		f.unplug = false
		if f.conn != nil {
			f.conn.SetFaults(f.usual.Faults)
		}
		if err := f.setLink(r.root); err != nil {
			return err
		}
		return f.moveGIDs(r, true)
	})
}

// failQP fails a queue pair. Its number is unique in a run only by chance: with several devices, all that
// have it fail.
func (r *run) failQP(device string, number uint32) error {
	var missing error
	failed := 0
	err := r.each("qp error", device, func(f *deviceFaults) error {
		err := f.device.Adapter().FailQP(number)
		if err == nil {
			failed++
		} else {
			missing = err
		}
		return nil
	})
	if err == nil && failed == 0 {
		err = missing
	}
	return err
}

// setLoss lets a share of the packets be lost.
func (f *deviceFaults) setLoss(share float64) error {
	if f.conn == nil {
		return failure.New("loss", syscall.EOPNOTSUPP, "packets of %s pass in memory: they can be lost only in a run with a control socket of its own", f.device.Name())
	}
	faults := f.usual.Faults
	faults.Loss = share
	if sum := share + faults.Duplicate + faults.Reorder + faults.Delay + faults.Corrupt + faults.Truncate; sum > 1 {
		return failure.New("loss", syscall.EINVAL, "with the faults that the run began with, the shares add up to %g: a datagram has one fault at most", sum)
	}
	f.conn.SetFaults(faults)
	return nil
}

// interfaces returns the devices that are on network interfaces which can lose their links, by the
// interface's number.
func (r *run) interfaces() map[int][]*deviceFaults {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := map[int][]*deviceFaults{}
	for _, f := range r.faults {
		if i := f.device.Interface(); i.Name != "" && i.Flags&net.FlagLoopback == 0 {
			found[i.Index] = append(found[i.Index], f)
		}
	}
	return found
}
