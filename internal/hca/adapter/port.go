package adapter

import (
	"maps"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// SetLink tells the device that its port has lost its link or has it again, and reports whether that is
// a change. Packets are lost while the link is down. The caller raises the event, ibv.EventPortErr or
// ibv.EventPortActive, when programs can see the new state everywhere.
func (d *Device) SetLink(up bool) (changed bool) {
	if d.linkDown.Swap(!up) == !up {
		return false
	}
	d.eng.Port().SetLink(up)
	return true
}

// LinkUp reports whether the port has a link.
func (d *Device) LinkUp() bool { return !d.linkDown.Load() }

// Raise raises an event of the port or the device in each context.
func (d *Device) Raise(t rdma.EventType) {
	for _, c := range d.all() {
		c.trace(TraceEvent, "port", 1, t.String(), nil)
		c.events.push(event{typ: t})
	}
}

// all returns the contexts of the device.
func (d *Device) all() []*Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.contexts))
}

// Objects are the numbers of the objects of a device.
type Objects struct {
	QPs           map[rdma.State]int
	Keys, Regions int
}

// Objects counts the objects of all contexts.
func (d *Device) Objects() Objects {
	o := Objects{QPs: map[rdma.State]int{}}
	for _, c := range d.all() {
		c.mu.Lock()
		o.Keys += len(c.mkeys)
		o.Regions += len(c.mrs)
		for _, q := range c.qps {
			o.QPs[rdma.State(q.state.Load())]++
		}
		c.mu.Unlock()
	}
	return o
}

// FailQP puts a queue pair of any context into ERR, as a fault of the adapter does: its requests are
// flushed, and the program gets the event QP fatal. ENOENT: no queue pair has the number.
func (d *Device) FailQP(number uint32) error {
	const op = "qp error"
	for _, c := range d.all() {
		q := c.QP(number)
		if q == nil {
			continue
		}
		if err := q.eng.Modify(ibv.QPModify{State: rdma.StateErr}, ibv.AttrState); err != nil {
			return failure.New(op, failure.Errno(err, syscall.EINVAL), "QP %#x: %v", number, err)
		}
		c.trace(TraceEvent, "qp", number, rdma.EventQPFatal.String(), failure.New(op, syscall.EIO, "the fault was asked for"))
		q.setState(rdma.StateErr, byDevice)
		q.async(rdma.EventQPFatal)
		return nil
	}
	return failure.New(op, syscall.ENOENT, "QP %#x does not exist", number)
}

// PeerLeft notes that the peer of a queue pair has ended the connection, as the reason of the requests
// that are flushed when the program puts the queue pair into ERR.
func (d *Device) PeerLeft(number uint32) {
	for _, c := range d.all() {
		if q := c.QP(number); q != nil {
			q.eng.PeerLeft()
			return
		}
	}
}

// MoveGIDs moves the entries of the device's own address to other indexes, or back, and reports whether the
// table has changed. The caller raises the event, ibv.EventGIDChange. Connections go on, as on an adapter whose address was removed and added
// again: the old entries are kept while queue pairs use them, so that the new ones get free indexes.
func (d *Device) MoveGIDs(back bool) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.eng.Addr()
	table, at := withoutGID(d.GIDs(), own)
	if len(at) == 0 || back && at[0] == firstIP {
		return false
	}
	e := GIDEntry{GID: own.As16()}
	if at[0] == firstIP {
		table = placeGID(table, e, at...)
	} else {
		table = placeGID(table, e)
	}
	d.gids.Store(&table)
	return true
}
