//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

const (
	eqeSize    = 64 // bytes of data in an event
	cookieSize = 8
)

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
		if q, ok := obj.(*adapter.CQ); ok && list.u16(0) == adapter.EventCompletion {
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
func (f *File) publish(obj any, e adapter.EventEntry) {
	f.evMu.Lock()
	defer f.evMu.Unlock()
	for _, s := range f.subs[obj] {
		if s.event == uint16(e.Type) {
			var unused uint32
			s.ch.put(newDEVXEvent(s.ch.size, s.cookie, e), &unused)
		}
	}
}

// newDEVXEvent returns an event: the cookie and, if there is room, the entry of the event queue.
func newDEVXEvent(size int, cookie uint64, e adapter.EventEntry) []byte {
	b := make([]byte, size)
	le.PutUint64(b, cookie)
	if eqe := b[cookieSize:]; len(eqe) > 0 {
		eqe[1] = e.Type
		copy(eqe[32:], e.Data[:])
	}
	return b
}
