//go:build linux

package uverbs

import (
	"encoding/binary"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// The numbers of DEVX events (enum mlx5_event in Linux's device.h).
const (
	devxCompletion = 0x00

	eqeSize    = 64 // bytes of data in an event
	cookieSize = 8
)

var devxEvents = map[rdma.EventType]uint16{
	rdma.EventCommEst: 0x02, rdma.EventSQDrained: 0x03, rdma.EventCQErr: 0x04, rdma.EventQPFatal: 0x05,
	rdma.EventQPReqErr: 0x10, rdma.EventQPAccessErr: 0x11, ibv.EventSRQErr: 0x12, rdma.EventQPLastWQEReached: 0x13, rdma.EventSRQLimitReached: 0x14,
}

// subscription is an event of an object that a program wants in a channel, with a cookie.
type subscription struct {
	ch     *channel
	event  uint16
	cookie uint64
}

// allocEventChannel answers the allocation of a DEVX event channel. An event is a cookie,
// followed by the event queue entry unless the program asked to omit that.
func (c *command) allocEventChannel() error {
	const op, omitData = "allocate DEVX event channel", 1
	flags, err := c.input(allocEventsFlags)
	if err != nil {
		return err
	}
	if flags.u32(0)&^omitData != 0 {
		return failure.New(op, syscall.EINVAL, "flags %#x: only %#x is known", flags.u32(0), omitData)
	}
	size := cookieSize + eqeSize
	if flags.u32(0)&omitData != 0 {
		size = cookieSize
	}
	ch, fd, err := c.file.newChannel(c, size)
	if err != nil {
		return err
	}
	c.file.evMu.Lock()
	ch.devx = true
	c.file.evMu.Unlock()
	c.give(allocEventsDescriptor, uint64(fd))
	return nil
}

// devxSubscribe answers the subscription to events of an object of DEVX.
func (c *command) devxSubscribe() error {
	const op = "DEVX subscribe to events"
	f := c.file
	fd, err := c.need(subscribeChannel, op)
	if err != nil {
		return err
	}
	v, err := c.inputs(subscribeTypes, subscribeCookie)
	if err != nil {
		return err
	}
	list, cookie := v[0], v[1]
	if c.has(subscribeSignaled) {
		return failure.New(op, syscall.EOPNOTSUPP, "events that are signaled to an eventfd are not offered: read the channel")
	}
	h, ok := c.value(subscribeObject)
	if !ok {
		return failure.New(op, syscall.EOPNOTSUPP, "events of no object: the device raises none")
	}
	o, err := get[*devxObject](&f.objects, h)
	if err != nil {
		return err
	}
	obj := f.raiser(o.Destruction)
	if obj == nil {
		return failure.New(op, syscall.EINVAL, "handle %d: the object raises no events", h)
	}
	f.evMu.Lock()
	defer f.evMu.Unlock()
	ch := f.channels[c.Injected(int(int32(fd)))]
	if ch == nil || !ch.devx {
		return failure.New(op, syscall.EBADF, "descriptor %d is no DEVX event channel of this device", int32(fd))
	}
	for ; len(list) >= 2; list = list[2:] {
		f.subs[obj] = append(f.subs[obj], subscription{ch, list.u16(0), cookie.u64(0)})
		if q, ok := obj.(*adapter.CQ); ok && list.u16(0) == devxCompletion {
			q.Listen()
		}
	}
	return nil
}

// unsubscribe ends the subscriptions to events of an object.
func (f *File) unsubscribe(obj any) {
	f.evMu.Lock()
	defer f.evMu.Unlock()
	delete(f.subs, obj)
}

// publish writes an event of an object to the channels that are subscribed to it.
func (f *File) publish(obj any, event uint16, number uint32) {
	f.evMu.Lock()
	defer f.evMu.Unlock()
	for _, s := range f.subs[obj] {
		if s.event == event {
			var unused uint32
			s.ch.put(newDEVXEvent(s.ch.size, s.cookie, event, number), &unused)
		}
	}
}

// newDEVXEvent returns an event: the cookie and, if there is room, the entry of the event
// queue with its type and the object's number.
func newDEVXEvent(size int, cookie uint64, event uint16, number uint32) []byte {
	b := make([]byte, size)
	le.PutUint64(b, cookie)
	if size == cookieSize {
		return b
	}
	eqe := b[cookieSize:]
	eqe[1] = uint8(event)
	const data, last = 32, 24 // the event's data, and where most events have the number
	at := data + last
	if event == devxEvents[rdma.EventCQErr] { // the number is at the start, and a syndrome says what is wrong: here always an overrun
		const syndrome, overrun = 11, 1
		at = data
		eqe[data+syndrome] = overrun
	}
	binary.BigEndian.PutUint32(eqe[at:], number)
	return b
}

// numberOf returns the number of an object that raises events.
func numberOf(obj any) uint32 {
	if n, ok := obj.(interface{ Number() uint32 }); ok {
		return n.Number()
	}
	return 0
}
