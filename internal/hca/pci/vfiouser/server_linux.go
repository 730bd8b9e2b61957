package vfiouser

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/operr"
)

// Serve serves the device to the client of a socket until the client closes it or the
// context ends. The socket and what the client has passed are closed then. The error is
// nil if the client has gone. refused is called with the reason of each command that is
// answered by an error; it may be nil.
func Serve(ctx context.Context, socket *net.UnixConn, dev transport.Device, refused func(error)) error {
	c := &conn{socket: transport.Socket{UnixConn: socket}, dev: dev, refused: refused}
	c.vectors.init(dev.Vectors())
	dev.Attach(&c.memory, &c.vectors)
	defer func() {
		dev.Reset()
		c.memory.Clear()
		c.vectors.close()
		socket.Close()
	}()
	return c.socket.Serve(ctx, c.serveOne)
}

// conn is a client.
type conn struct {
	socket  transport.Socket
	dev     transport.Device
	refused func(error)
	memory  guestmem.Map
	vectors vectors

	in, out []byte // buffers of messages
}

// serveOne reads a message and answers it.
func (c *conn) serveOne() error {
	h, payload, err := c.receive()
	defer c.socket.CloseDescriptors()
	if err != nil {
		return err
	}
	answer, err := c.execute(&h, payload)
	var errno syscall.Errno
	if err != nil {
		errno = syscall.EIO
		errors.As(err, &errno)
		answer = nil
		if c.refused != nil {
			c.refused(&operr.Error{Op: "vfio-user " + cmp.Or(commands[h.command].name, "unknown command"), Errno: errno, Reason: "refused", Err: err})
		}
	}
	if h.flags&flagNoReply != 0 {
		return nil
	}
	c.out = append(h.reply(c.out[:0], len(answer), errno), answer...)
	_, err = c.socket.Write(c.out)
	return err
}

// receive reads a message.
func (c *conn) receive() (h header, payload []byte, err error) {
	var head [headerSize]byte
	if err := c.socket.ReadHead(head[:]); err != nil {
		return h, nil, err
	}
	if h, err = parseHeader(&head); err != nil {
		return h, nil, err
	}
	size := int(h.size) - headerSize
	if cap(c.in) < size {
		c.in = make([]byte, size)
	}
	payload = c.in[:size]
	_, err = io.ReadFull(c.socket, payload)
	return h, payload, err
}

// commands are the vfio-user commands that the server executes, by number: the name, the least length of the payload
// in bytes, and the function that executes the command and returns the payload of the reply.
var commands = map[uint16]struct {
	name  string
	least int
	do    func(c *conn, b []byte) ([]byte, error)
}{
	cmdVersion:     {"VERSION", 4, (*conn).version},
	cmdDMAMap:      {"DMA_MAP", 32, func(c *conn, b []byte) ([]byte, error) { return nil, c.dmaMap(b) }},
	cmdDMAUnmap:    {"DMA_UNMAP", 24, (*conn).dmaUnmap},
	cmdDeviceInfo:  {"DEVICE_GET_INFO", 0, func(*conn, []byte) ([]byte, error) { return words(16, deviceFlags, regions, interrupts), nil }},
	cmdRegionInfo:  {"DEVICE_GET_REGION_INFO", 16, (*conn).regionInfo},
	cmdIRQInfo:     {"DEVICE_GET_IRQ_INFO", 16, (*conn).irqInfo},
	cmdSetIRQs:     {"DEVICE_SET_IRQS", 20, func(c *conn, b []byte) ([]byte, error) { return nil, c.setIRQs(b) }},
	cmdRegionRead:  {"REGION_READ", 16, func(c *conn, b []byte) ([]byte, error) { return c.access(false, b) }},
	cmdRegionWrite: {"REGION_WRITE", 16, func(c *conn, b []byte) ([]byte, error) { return c.access(true, b) }},
	cmdDeviceReset: {"DEVICE_RESET", 0, func(c *conn, _ []byte) ([]byte, error) { c.dev.Reset(); return nil, nil }},
}

// execute executes a command and returns the payload of its answer.
func (c *conn) execute(h *header, b []byte) ([]byte, error) {
	command, ok := commands[h.command]
	if !ok {
		return nil, failure.New("vfio-user", syscall.EINVAL, "command %d is not known", h.command)
	}
	if err := short(b, command.least); err != nil {
		return nil, err
	}
	return command.do(c, b)
}

// words encodes numbers of 32 bits.
func words(w ...uint32) []byte {
	b := make([]byte, 0, 4*len(w))
	for _, v := range w {
		b = le.AppendUint32(b, v)
	}
	return b
}

func (c *conn) version(b []byte) ([]byte, error) {
	if major := le.Uint16(b); major != 0 {
		return nil, failure.New("vfio-user", syscall.EINVAL, "version %d.%d of the protocol: the server has 0.0", major, le.Uint16(b[2:]))
	}
	return versionAnswer, nil
}

func (c *conn) dmaMap(b []byte) error {
	flags, offset, addr, size := le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	readOnly := flags&mapWrite == 0
	if len(c.socket.FDs) > 0 && flags&mapRead != 0 {
		return transport.MapFile(&c.memory, c.socket.FDs[0], offset, addr, size, readOnly)
	}
	return c.memory.Add(guestmem.Range{Addr: addr, Size: size, ReadOnly: readOnly})
}

func (c *conn) dmaUnmap(b []byte) ([]byte, error) {
	addr, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	answer := append([]byte(nil), b[:24]...)
	le.PutUint32(answer, 24)
	if le.Uint32(b[4:])&unmapAll != 0 {
		c.memory.Clear()
		return answer, nil
	}
	n, err := c.memory.Remove(addr, size)
	le.PutUint64(answer[16:], n)
	return answer, err
}

func (c *conn) regionInfo(b []byte) ([]byte, error) {
	index := le.Uint32(b[8:])
	if index >= regions {
		return nil, failure.New("vfio-user", syscall.EINVAL, "region %d: the device has %d", index, regions)
	}
	var flags uint32
	size := c.sizeOf(index)
	if size > 0 {
		flags = regionFlags
	}
	answer := words(32, flags, index, 0)
	answer = le.AppendUint64(answer, size)
	return le.AppendUint64(answer, 0), nil
}

// sizeOf returns the size of a region: 0 for those that the device does not have.
func (c *conn) sizeOf(region uint32) uint64 {
	switch region {
	case regionBAR0:
		return c.dev.BARSize()
	case regionConfig:
		return transport.ConfigSize
	}
	return 0
}

func (c *conn) irqInfo(b []byte) ([]byte, error) {
	switch index := le.Uint32(b[8:]); {
	case index >= interrupts:
		return nil, failure.New("vfio-user", syscall.EINVAL, "interrupt index %d: the device has %d", index, interrupts)
	case index == irqMSIX:
		return words(16, irqEventfd, index, uint32(c.dev.Vectors())), nil
	default:
		return words(16, 0, index, 0), nil
	}
}

// access reads from a region or writes to it.
func (c *conn) access(write bool, b []byte) ([]byte, error) {
	off, region, count := le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:])
	size := c.sizeOf(region)
	if size == 0 {
		return nil, failure.New("vfio-user", syscall.EINVAL, "region %d has no bytes", region)
	}
	if count > maxTransfer || off > size || uint64(count) > size-off {
		return nil, failure.New("vfio-user", syscall.EINVAL, "%d bytes at %#x of region %d with %#x", count, off, region, size)
	}
	answer := append([]byte(nil), b[:16]...)
	if !write {
		answer = append(answer, make([]byte, count)...)
		if data := answer[16:]; region == regionConfig {
			c.dev.ReadConfig(int(off), data)
		} else {
			c.dev.ReadBAR(off, data)
		}
		return answer, nil
	}
	if err := short(b[16:], int(count)); err != nil {
		return nil, err
	}
	if data := b[16 : 16+count]; region == regionConfig {
		c.dev.WriteConfig(int(off), data)
	} else {
		c.dev.WriteBAR(off, data)
	}
	return answer, nil
}
