package umlpci

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/operr"
)

// The queues of the virtio device.
const (
	accessQueue    = 0
	interruptQueue = 1
	queues         = 2
)

// Serve serves the device to the kernel at the other end of a socket until it closes the socket
// or the context ends. The socket and what the kernel has passed are closed then. The error is
// nil if the kernel has gone. refused is called with the reason of each request that is refused,
// from several goroutines; it may be nil.
func Serve(ctx context.Context, socket *net.UnixConn, dev transport.Device, refused func(error)) error {
	c := &conn{socket: transport.Socket{UnixConn: socket}, dev: dev, refused: refused}
	if refused == nil {
		c.refused = func(error) {}
	}
	c.vectors.init(dev.ReadConfig, dev.Vectors())
	dev.Attach(&c.memory, &c.vectors)
	defer func() {
		for i := range c.rings {
			c.stop(i)
			c.rings[i].closeKick()
		}
		dev.Reset()
		c.memory.Clear()
		c.vectors.setCall(nil)
		c.setAccessCall(nil)
		if c.backend != nil {
			c.backend.Close()
		}
		socket.Close()
	}()
	return c.socket.Serve(ctx, c.serveOne)
}

// conn is a kernel.
type conn struct {
	socket  transport.Socket
	dev     transport.Device
	refused func(error)
	memory  guestmem.Map
	vectors vectors

	rings   [queues]ring
	backend *os.File // on which a device may send requests; it sends none
	in      [maxPayload]byte
}

// ring is what the kernel has said about a queue, and the goroutine that serves it.
type ring struct {
	queue   queue
	kick    *os.File          // the kernel writes it when there is something in the queue
	call    *transport.Signal // of the queue of accesses: tells the kernel of executed ones; nil: none
	serving sync.WaitGroup
	running bool
	ending  atomic.Bool // the goroutine ends, also if the queue is never empty
}

func (r *ring) closeKick() {
	if r.kick != nil {
		r.kick.Close()
		r.kick = nil
	}
}

// serveOne reads a message and answers it.
func (c *conn) serveOne() error {
	var head [headerSize]byte
	defer c.socket.CloseDescriptors()
	if err := c.socket.ReadHead(head[:]); err != nil {
		return err
	}
	h, err := parseHeader(&head)
	if err != nil {
		return err
	}
	payload := c.in[:h.size]
	if _, err := io.ReadFull(c.socket, payload); err != nil {
		return err
	}
	answer, err := c.execute(&h, payload)
	if err != nil {
		c.refused(&operr.Error{Op: "vhost-user " + h.name(), Errno: failure.Errno(err, syscall.EIO), Reason: "refused", Err: err})
		answer = 1
	}
	if h.request == reqGetFeatures || h.request == reqGetProtocolFeatures || h.flags&flagNeedReply != 0 {
		_, err = c.socket.Write(h.reply(answer))
	}
	return err // without an answer, the kernel would not learn of it
}

// execute executes a request. The answer is 0 for those that only have success and failure.
func (c *conn) execute(h *header, b []byte) (answer uint64, err error) {
	switch h.request {
	case reqGetFeatures:
		return features, nil
	case reqGetProtocolFeatures:
		return protocolFeatures, nil
	case reqSetOwner:
		return 0, nil
	case reqSetFeatures:
		return 0, chosen(b, features, featureVersion1|featureEventIndex)
	case reqSetProtocolFeatures:
		return 0, chosen(b, protocolFeatures, 0)
	case reqSetMemTable:
		return 0, c.setMemory(b)
	case reqSetBackendFD:
		return 0, c.setBackend()
	case reqSetVringNum, reqSetVringAddr, reqSetVringBase, reqSetVringKick, reqSetVringCall, reqSetVringEnable:
		return 0, c.ring(h.request, b)
	}
	return 0, failure.New("vhost-user", syscall.EINVAL, "request %d is not known", h.request)
}

// chosen checks the features that the kernel has chosen.
func chosen(b []byte, offered, needed uint64) error {
	if err := short(b, 8); err != nil {
		return err
	}
	if v := le.Uint64(b); v&^offered != 0 || needed&^v != 0 {
		return failure.New("vhost-user", syscall.EINVAL, "features %#x: must have %#x and none beyond %#x", v, needed, offered)
	}
	return nil
}

// setMemory replaces the guest's memory.
func (c *conn) setMemory(b []byte) error {
	if err := short(b, 8); err != nil {
		return err
	}
	n := le.Uint32(b)
	if n > maxRegions || int(n) != len(c.socket.FDs) || len(b) < 8+int(n)*regionSize {
		return failure.New("vhost-user", syscall.EINVAL, "%d ranges in %d bytes with %d descriptors: must be 0 to %d, of %d bytes and with a descriptor each",
			n, len(b), len(c.socket.FDs), maxRegions, regionSize)
	}
	c.memory.Clear()
	for i := range int(n) {
		r := b[8+i*regionSize:]
		addr, size, offset := le.Uint64(r), le.Uint64(r[8:]), le.Uint64(r[24:])
		if err := transport.MapFile(&c.memory, c.socket.FDs[i], offset, addr, size, false); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) setBackend() error {
	if len(c.socket.FDs) == 0 {
		return failure.New("vhost-user", syscall.EINVAL, "a channel without a descriptor")
	}
	fd, err := c.socket.Take(0)
	if err != nil {
		return err
	}
	if c.backend != nil {
		c.backend.Close()
	}
	c.backend = os.NewFile(uintptr(fd), "channel")
	return nil
}

// ring executes a request about a queue.
func (c *conn) ring(request uint32, b []byte) error {
	if err := short(b, 8); err != nil {
		return err
	}
	index, v := le.Uint32(b), le.Uint32(b[4:])
	if request == reqSetVringKick || request == reqSetVringCall {
		index &= noDescriptor - 1
	}
	if index >= queues {
		return failure.New("vhost-user", syscall.EINVAL, "queue %d: the device has %d", index, queues)
	}
	r := &c.rings[index]
	if request == reqSetVringCall {
		return c.setCall(int(index))
	}
	if request == reqSetVringEnable && v != 0 {
		return c.start(int(index))
	}
	c.stop(int(index)) // a queue is changed while it stands
	switch request {
	case reqSetVringNum:
		if v == 0 || v > maxEntries || v&(v-1) != 0 {
			return failure.New("vhost-user", syscall.EINVAL, "a queue of %d entries: must be a power of two up to %d", v, maxEntries)
		}
		r.queue.entries = uint16(v)
	case reqSetVringBase:
		r.queue.taken, r.queue.returned, r.queue.notified = uint16(v), uint16(v), uint16(v)
	case reqSetVringAddr:
		if err := short(b, 32); err != nil {
			return err
		}
		r.queue.desc, r.queue.used, r.queue.avail = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	case reqSetVringKick:
		r.closeKick()
		if len(c.socket.FDs) > 0 {
			fd, err := c.socket.Take(0)
			if err != nil {
				return err
			}
			r.kick = os.NewFile(uintptr(fd), "kick")
		}
	}
	return nil
}

func (c *conn) setCall(index int) error {
	var s *transport.Signal
	if len(c.socket.FDs) > 0 {
		var err error
		if s, err = c.socket.TakeSignal(0); err != nil {
			return err
		}
	}
	if index == interruptQueue {
		c.vectors.setCall(s)
		return nil
	}
	c.stop(index)
	c.setAccessCall(s)
	return nil
}

func (c *conn) setAccessCall(s *transport.Signal) {
	r := &c.rings[accessQueue]
	r.call.Close()
	r.call = s
}

// start starts a queue that was described.
func (c *conn) start(index int) error {
	r := &c.rings[index]
	if r.running {
		return nil
	}
	if r.queue.entries == 0 || r.kick == nil {
		return failure.New("vhost-user", syscall.EINVAL, "queue %d of %d entries is enabled: it must have entries and a descriptor to kick", index, r.queue.entries)
	}
	r.queue.mem = &c.memory
	r.running = true
	r.ending.Store(false)
	kick, call := r.kick, r.call
	if index == interruptQueue {
		c.vectors.setQueue(&r.queue)
		r.serving.Go(func() { c.serveInterrupts(kick) })
	} else {
		r.serving.Go(func() { c.serveAccesses(r, kick, call) })
	}
	return nil
}

// stop ends the goroutine of a queue. The queue then needs another descriptor to kick.
func (c *conn) stop(index int) {
	r := &c.rings[index]
	if !r.running {
		return
	}
	r.ending.Store(true)
	r.closeKick()
	r.serving.Wait()
	r.running = false
	if index == interruptQueue {
		c.vectors.setQueue(nil)
	}
}

// wait waits for a kick. It returns false when the descriptor was closed, or is no eventfd. The
// kernel shares the flags of the descriptor: a Read of the file would block if it clears
// O_NONBLOCK, and no Close would end it.
func wait(kick *os.File) bool {
	conn, err := kick.SyscallConn()
	if err != nil {
		return false
	}
	bad := conn.Read(func(fd uintptr) bool {
		err = transport.ReadEventfd(int(fd))
		return err != unix.EAGAIN
	})
	return bad == nil && err == nil
}

// serveInterrupts gives waiting vectors the buffers that come.
func (c *conn) serveInterrupts(kick *os.File) {
	for wait(kick) {
		c.vectors.kicked()
	}
}

// maxUnread is the number of executed accesses of which the kernel is not told. It waits for the
// answers of reads by itself, and frees the buffers of writes when it is told, or at its next
// read. It must be told before its queue is full.
const maxUnread = 64

// serveAccesses executes the accesses of the kernel.
func (c *conn) serveAccesses(r *ring, kick *os.File, call *transport.Signal) {
	q := &r.queue
	in := make([]byte, 0, accessSize+maxAccess)
	most := min(maxUnread, q.entries/4)
	for {
		for !r.ending.Load() {
			ch, ok, err := q.next(in)
			if err == nil && ok {
				err = q.finish(&ch, c.access(&ch))
			} else if err == nil {
				ok, err = q.sleep()
			}
			if err != nil {
				c.refused(&operr.Error{Op: "virtqueue", Errno: failure.Errno(err, syscall.EIO), Reason: "the queue of accesses has failed", Err: err})
				return
			}
			if q.returned-q.notified > most {
				if wants, err := q.interested(); err == nil && wants {
					call.Send()
				}
			}
			if !ok {
				break
			}
		}
		if !wait(kick) {
			return
		}
	}
}

// access executes an access and returns the answer, which is empty for a write.
func (c *conn) access(ch *chain) []byte {
	a, err := parseAccess(ch.in, ch.free)
	size := c.dev.BARSize()
	if a.op == opConfigRead || a.op == opConfigWrite {
		size = transport.ConfigSize
	}
	if err == nil && (a.addr > size || uint64(a.size) > size-a.addr) {
		err = failure.New("PCI message", syscall.EINVAL, "operation %d of %d bytes at %#x of %#x", a.op, a.size, a.addr, size)
	}
	if err != nil {
		c.refused(err)
		return nil
	}
	switch a.op {
	case opConfigRead:
		b := make([]byte, a.size)
		c.dev.ReadConfig(int(a.addr), b)
		return b
	case opConfigWrite:
		c.dev.WriteConfig(int(a.addr), a.data)
		if c.vectors.control != 0 {
			var b [2]byte
			c.dev.ReadConfig(c.vectors.control, b[:])
			c.vectors.configured(le.Uint16(b[:]))
		}
	case opBARRead:
		b := make([]byte, a.size)
		if !c.vectors.access(a.addr, b, false) {
			c.dev.ReadBAR(a.addr, b)
		}
		return b
	case opBARWrite:
		if !c.vectors.access(a.addr, a.data, true) {
			c.dev.WriteBAR(a.addr, a.data)
		}
	}
	return nil
}
