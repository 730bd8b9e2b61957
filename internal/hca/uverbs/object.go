//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// mostObjects bounds the objects of one open device.
const mostObjects = 1 << 20

// object is the object of a handle: a type of this package that holds an object of
// package adapter.
type object interface {
	close() error
}

type (
	pdObject   struct{ *adapter.PD }
	mwObject   struct{ *adapter.MW }
	ahObject   struct{ *adapter.AH }
	umemObject struct{ *adapter.Umem }
)

func (o pdObject) close() error   { return o.Close() }
func (o mwObject) close() error   { return o.Close() }
func (o ahObject) close() error   { return o.Close() }
func (o umemObject) close() error { return o.Close() }

// eventCounts counts the events of an object that its program has read or can read. When
// the object is destroyed, unread events are removed from the channels.
type eventCounts struct {
	user        uint64 // the program's name of the object, which its events carry
	async       *channel
	comp        *channel
	asyncEvents uint32 // guarded by the channels' locks
	compEvents  uint32
}

// counts are those of the object that has them.
func (e *eventCounts) counts() *eventCounts { return e }

type cqObject struct {
	*adapter.CQ
	eventCounts
	entries int
	regions []*region
}

func (o *cqObject) close() error { return o.Close() }

type qpObject struct {
	*adapter.QP
	eventCounts
	typ     rdma.QPType
	cap     adapter.QPCap
	sigAll  bool
	opened  bool        // by OPEN_QP
	xrcd    *xrcdObject // nil: none
	regions []*region
	groups  map[[16]byte]bool // of multicast, to which it is attached
}

func (o *qpObject) close() error { return o.Close() }

type srqObject struct {
	*adapter.SRQ
	eventCounts
	xrcd    *xrcdObject // nil: none
	regions []*region
}

func (o *srqObject) close() error { return o.Close() }

// table maps handles to objects. The File's lock guards it.
type table struct {
	objects map[uint32]object
	numbers number.Range
}

func (t *table) add(o object) (uint32, error) {
	if len(t.objects) >= mostObjects {
		o.close()
		return 0, failure.New("uverbs", syscall.ENOMEM, "%d objects are open: a device takes no more", mostObjects)
	}
	if t.objects == nil {
		t.objects = map[uint32]object{}
	}
	n := number.Next(&t.numbers, t.objects)
	t.objects[n] = o
	return n, nil
}

// get returns the object of type T with a handle.
func get[T object](t *table, handle uint64) (T, error) {
	o, ok := t.objects[uint32(handle)].(T)
	if !ok || handle>>32 != 0 {
		return o, failure.New("uverbs", syscall.ENOENT, "handle %d: the program has no object of this kind under it", handle)
	}
	return o, nil
}

// named returns the object of type T whose handle an attribute holds.
func named[T object](c *command, id uint16, op string) (o T, err error) {
	h, err := c.need(id, op)
	if err != nil {
		return o, err
	}
	return get[T](&c.file.objects, h)
}

// remove closes the object of type T whose handle an attribute holds, and removes it from the table.
func remove[T object](c *command, id uint16, op string) (T, error) {
	o, err := named[T](c, id, op)
	if err == nil {
		err = o.close()
	}
	if err == nil {
		h, _ := c.value(id)
		delete(c.file.objects.objects, uint32(h))
	}
	return o, err
}
