//go:build linux

package uverbs

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/procmem"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// Offsets of mappings of the device's descriptor, in pages. libmlx5 encodes the kind of a
// mapping as command<<8 | argument. The clock page is in the memfd of the descriptor, at
// this offset. Queues and UARs come from files of their own.
const (
	pageSize  = 4096
	mapContig = 1 // MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES
	mapClock  = 7 // MLX5_IB_MMAP_CLOCK_INFO

	firstUAR = 1 << 12 // after the offsets of all commands
	mostUARs = 4096    // doorbell pages of one open device
)

// File is one open of the device: a context with its objects.
type File struct {
	dev  *Device
	mem  *memory
	maps regions
	fd   *os.File // the memfd
	// clock is written under the device's lock.
	clock clock
	pid   int

	mu      sync.Mutex      // serialises the commands; guards the following fields
	others  map[int]*memory // memory of other processes that got the descriptor, by process id
	waits   bool            // copies of the program's memory may wait
	ctx     *adapter.Context
	objects table
	uars    map[uint32]*uarObject // by page_id
	pageIDs *number.Range
	dm      deviceMemory
	closed  bool
	ended   bool // ctx is closed
	dead    bool // the device has failed: the context has ended, though the program has it open

	uarMu sync.Mutex // guards the addresses of UARs and the following field
	bells map[*uarObject]struct{}

	evMu     sync.Mutex // guards the following fields
	channels map[*os.File]*channel
	async    *channel    // the first one, for objects that name no other
	byObject map[any]any // *adapter.CQ to *cqObject, and so on
	subs     map[any][]subscription
}

// Open opens the device's node for a process. The file owns process from then on.
func (d *Device) Open(process *procmem.Process) (*File, error) {
	f, err := d.open(process)
	if err != nil {
		process.Close()
	}
	return f, err
}

func (d *Device) open(process *procmem.Process) (*File, error) {
	const op = "open the device"
	pid := process.Pid()
	if err := descriptors.take(op, pid, fileDescriptors); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("softmkey-uverbs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		descriptors.give(pid, fileDescriptors)
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "no memory file: %v", err)
	}
	f := &File{dev: d, fd: os.NewFile(uintptr(fd), "uverbs"), pid: pid, uars: map[uint32]*uarObject{}, pageIDs: number.From(1, mostUARs-1), bells: map[*uarObject]struct{}{},
		channels: map[*os.File]*channel{}, byObject: map[any]any{}, subs: map[any][]subscription{}}
	f.maps.pid = pid
	f.mem = &memory{process: process, maps: &f.maps}
	if err := unix.Ftruncate(fd, firstUAR*pageSize); err != nil {
		f.fd.Close()
		descriptors.give(pid, fileDescriptors)
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "sizing the memory file: %v", err)
	}
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	return f, nil
}

// fileDescriptors is the number of descriptors that an open device holds: the memfd, and the memory
// of the process with the list of its mappings.
const fileDescriptors = 3

// OwnerEnded tells the file that the process that opened it has ended. Nothing reaches its memory
// from then on, even if another process shares its address space.
func (f *File) OwnerEnded() { f.mem.process.End() }

// Descriptor returns the file whose copy the program gets.
func (f *File) Descriptor() *os.File { return f.fd }

// Mapping returns the file that a mapping at offset comes from: a fresh one for
// a queue, since libmlx5 uses the same offset for all queues of a size.
func (f *File) Mapping(offset, length uint64) (*os.File, error) {
	page := offset / pageSize
	if page>>8 == mapContig {
		return f.maps.add(offset, length)
	}
	if page >= firstUAR && page < firstUAR+mostUARs {
		f.mu.Lock()
		defer f.mu.Unlock()
		if u := f.uars[uint32(page-firstUAR)]; u != nil && length <= pageSize {
			return u.d, nil
		}
		return nil, failure.New("map a UAR", unix.EINVAL, "page %d, %d bytes: no UAR stands there", page, length)
	}
	return f.fd, nil
}

// Unmapped frees the memory of a queue that the program has unmapped.
func (f *File) Unmapped(d *os.File) { f.maps.unmapped(d) }

// Close destroys the context with everything in it.
func (f *File) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	f.end()
	for _, u := range f.uars {
		u.free()
	}
	f.uars = nil
	f.maps.close()
	f.clock.close()
	f.fd.Close()
	f.mem.process.Close()
	for _, m := range f.others {
		m.process.Close()
	}
	descriptors.give(f.pid, fileDescriptors)
	f.evMu.Lock()
	defer f.evMu.Unlock()
	for _, ch := range f.channels {
		ch.close()
	}
}

// Fail ends the context as a fatal error of the device does: the program gets the event, every later
// command is EIO, and nothing answers the peers of its queue pairs.
func (f *File) Fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.dead {
		return
	}
	f.dead = true
	f.Async(ibv.EventDeviceFatal, nil)
	f.end()
}

// end destroys the context with everything in it. f.mu is held.
func (f *File) end() {
	if f.ctx != nil && !f.ended {
		f.ended = true
		f.dev.remove(f)
		// The QPs that belong to another context, and the opens of shared domains, do not
		// end with the context.
		for _, o := range f.objects.objects {
			if q, ok := o.(*qpObject); ok && q.opened {
				f.dev.notClosed(q.close())
			}
			if m, ok := o.(mrObject); ok && m.watched != nil {
				f.dev.unwatch(m.watched)
			}
		}
		err := f.ctx.Close()
		f.dev.notClosed(err)
		if err == nil { // nothing uses the memory of regions any more
			f.dm.release()
			for _, o := range f.objects.objects {
				if m, ok := o.(mrObject); ok {
					m.unmap()
				}
			}
		}
		for _, o := range f.objects.objects {
			if x, ok := o.(*xrcdObject); ok {
				f.dev.notClosed(x.release())
			}
		}
		f.dev.processes.Delete(f.ctx) // the trace of Close names the process
	}
	f.objects = table{}
}

// newChannel makes a channel and gives the caller its descriptor.
func (f *File) newChannel(c *command, size int) (*channel, int, error) {
	ch, err := newChannel(size, f.pid)
	if err != nil {
		return nil, -1, err
	}
	f.evMu.Lock()
	f.channels[ch.r] = ch
	f.evMu.Unlock()
	r := ch.r
	gone := func() {
		f.evMu.Lock()
		delete(f.channels, r)
		if f.async == ch {
			f.async = nil
		}
		f.evMu.Unlock()
		ch.close()
	}
	fd, err := c.Inject(r, gone)
	if err != nil { // the program's table of descriptors is full
		gone()
		return nil, -1, err
	}
	return ch, fd, nil
}

// channelOf returns the channel of an attribute that holds a descriptor of the caller, or
// nil if the attribute is missing.
func (f *File) channelOf(c *command, id uint16, size int) (*channel, error) {
	v, ok := c.value(id)
	if !ok {
		return nil, nil
	}
	f.evMu.Lock()
	defer f.evMu.Unlock()
	ch := f.channels[c.Injected(int(int32(v)))]
	if ch == nil || ch.size != size {
		return nil, failure.New("uverbs", unix.EBADF, "descriptor %d is no event channel of this device", int32(v))
	}
	return ch, nil
}

// asyncOf returns the channel of an object's asynchronous events.
func (f *File) asyncOf(c *command, id uint16) (*channel, error) {
	ch, err := f.channelOf(c, id, asyncEventSize)
	if ch == nil && err == nil {
		f.evMu.Lock()
		ch = f.async
		f.evMu.Unlock()
	}
	return ch, err
}

// create calls make for the adapter's part of an object with queues in the program's memory, and
// returns the object's handle. Events find the object by key. regions gets the queues' regions.
func (f *File) create(o object, regions *[]*region, make func() (key any, err error)) (uint32, error) {
	var key any
	used, err := f.maps.using(func() (err error) {
		key, err = make()
		return err
	})
	if err != nil {
		return 0, err
	}
	*regions = used
	h, err := f.objects.add(o)
	if err != nil {
		f.maps.leave(used)
		return 0, err
	}
	f.know(key, o)
	return h, nil
}

func (f *File) know(key, value any) {
	f.evMu.Lock()
	f.byObject[key] = value
	f.evMu.Unlock()
}

func (f *File) forget(key any) {
	f.evMu.Lock()
	delete(f.byObject, key)
	f.evMu.Unlock()
}

// Completion implements adapter.Events.
func (f *File) Completion(q *adapter.CQ) {
	f.evMu.Lock()
	o, _ := f.byObject[q].(*cqObject)
	f.evMu.Unlock()
	f.publish(q, adapter.CompletionEntry(q))
	if o != nil && o.comp != nil {
		o.comp.put(newEvent(compEventSize, o.user, 0), &o.compEvents)
	}
}

// Async implements adapter.Events.
func (f *File) Async(t rdma.EventType, obj any) {
	f.evMu.Lock()
	ch := f.async
	o := f.byObject[obj]
	f.evMu.Unlock()
	if e, ok := adapter.AsyncEntry(t, obj); ok {
		f.publish(obj, e)
	}
	known, ok := o.(interface{ counts() *eventCounts })
	if !ok {
		if ch != nil && obj == nil {
			port := uint64(1)
			if t == ibv.EventDeviceFatal {
				port = 0 // all of them
			}
			var unused uint32
			ch.put(newEvent(asyncEventSize, port, uint32(t)), &unused)
		}
		return
	}
	if counts := known.counts(); counts.async != nil {
		counts.async.put(newEvent(asyncEventSize, counts.user, uint32(t)), &counts.asyncEvents)
	}
}
