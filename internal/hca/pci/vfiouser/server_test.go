//go:build linux

package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/pci/transport/transporttest"
)

// client is the monitor's side of a connection.
type client struct {
	t    testing.TB
	conn *net.UnixConn
	dev  *transporttest.Device
	done chan error
	id   uint16
}

func newClient(t testing.TB) *client {
	conn, socket := transporttest.Sockets(t)
	c := &client{t: t, conn: conn, dev: &transporttest.Device{}, done: make(chan error, 1)}
	go func() { c.done <- Serve(context.Background(), socket, c.dev, nil) }()
	t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	if c.conn.Close() == nil {
		<-c.done
	}
}

// message encodes a command.
func (c *client) message(command uint16, payload []byte, flags uint32) []byte {
	c.id++
	b := le.AppendUint16(nil, c.id)
	b = le.AppendUint16(b, command)
	b = le.AppendUint32(b, uint32(headerSize+len(payload)))
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, 0)
	return append(b, payload...)
}

// call sends a command and returns the answer's payload and errno.
func (c *client) call(command uint16, payload []byte, fds ...int) ([]byte, syscall.Errno) {
	c.t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.conn.WriteMsgUnix(c.message(command, payload, 0), rights, nil); err != nil {
		c.t.Fatal(err)
	}
	var head [headerSize]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		c.t.Fatal(err)
	}
	if id := le.Uint16(head[:]); id != c.id || le.Uint16(head[2:]) != command || le.Uint32(head[8:])&flagTypeMask != flagReply {
		c.t.Fatalf("answer %x to command %d with id %d", head, command, c.id)
	}
	answer := make([]byte, le.Uint32(head[4:])-headerSize)
	if _, err := io.ReadFull(c.conn, answer); err != nil {
		c.t.Fatal(err)
	}
	errno := syscall.Errno(le.Uint32(head[12:]))
	if failed := le.Uint32(head[8:])&flagError != 0; failed != (errno != 0) {
		c.t.Fatalf("answer %x: error bit %v with errno %d", head, failed, errno)
	}
	return answer, errno
}

func numbers(w ...any) (b []byte) {
	for _, v := range w {
		switch v := v.(type) {
		case int:
			b = le.AppendUint32(b, uint32(v))
		case uint64:
			b = le.AppendUint64(b, v)
		}
	}
	return b
}

func memfd(t testing.TB, size int64) int {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	fatal.If(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	fatal.If(t, unix.Ftruncate(fd, size))
	return fd
}

// TestConversation sends the messages of QEMU: version, queries, memory, accesses, interrupts,
// reset.
func TestConversation(t *testing.T) {
	c := newClient(t)
	version, errno := c.call(cmdVersion, append([]byte{0, 0, 0, 0}, "{\"capabilities\":{\"max_msg_fds\":16}}\x00"...))
	if errno != 0 || version[len(version)-1] != 0 || !bytes.Contains(version, []byte("max_msg_fds\":8,")) || !bytes.Contains(version, []byte("max_dma_maps\":32768}")) {
		t.Errorf("VERSION: %q, %v", version, errno)
	}
	if b, errno := c.call(cmdDeviceInfo, numbers(16, 0, 0, 0)); errno != 0 || !bytes.Equal(b, numbers(16, 3, 9, 5)) {
		t.Errorf("DEVICE_GET_INFO: %x, %v", b, errno)
	}
	for index, size := range map[int]uint64{0: 1 << 16, 1: 0, 7: 4096, 8: 0} {
		flags := 3
		if size == 0 {
			flags = 0
		}
		if b, errno := c.call(cmdRegionInfo, numbers(32, 0, index, 0, uint64(0), uint64(0))); errno != 0 || !bytes.Equal(b, numbers(32, flags, index, 0, size, uint64(0))) {
			t.Errorf("region %d: %x, %v", index, b, errno)
		}
	}
	if b, errno := c.call(cmdIRQInfo, numbers(16, 0, irqMSIX, 0)); errno != 0 || !bytes.Equal(b, numbers(16, 1, irqMSIX, 4)) {
		t.Errorf("DEVICE_GET_IRQ_INFO: %x, %v", b, errno)
	}

	mem, irq, _ := c.dev.Attached()
	fd := memfd(t, 1<<16)
	if _, errno := c.call(cmdDMAMap, numbers(32, 3, uint64(0x1000), uint64(0x100000), uint64(0x2000)), fd); errno != 0 {
		t.Fatalf("DMA_MAP: %v", errno)
	}
	fatal.If(t, mem.Write(0x100010, []byte("guest")))
	got := make([]byte, 5)
	if _, err := unix.Pread(fd, got, 0x1010); err != nil || string(got) != "guest" {
		t.Errorf("the guest's memory holds %q, %v", got, err)
	}
	if _, errno := c.call(cmdDMAUnmap, numbers(24, 0, uint64(0x100000), uint64(0x2000))); errno != 0 {
		t.Fatalf("DMA_UNMAP: %v", errno)
	}
	if err := mem.Write(0x100010, got); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("writing after DMA_UNMAP: %v, want EFAULT", err)
	}

	if b, errno := c.call(cmdRegionWrite, append(numbers(uint64(0x20), regionBAR0, 8), "doorbell"...)); errno != 0 || len(b) != 16 {
		t.Errorf("REGION_WRITE: %x, %v", b, errno)
	}
	if b, errno := c.call(cmdRegionRead, numbers(uint64(0x20), regionBAR0, 8)); errno != 0 || string(b[16:]) != "doorbell" {
		t.Errorf("REGION_READ: %q, %v", b, errno)
	}
	// A write without an answer, and one after it that has one.
	if _, err := c.conn.Write(c.message(cmdRegionWrite, append(numbers(uint64(4), regionConfig, 1), 7), flagNoReply)); err != nil {
		t.Fatal(err)
	}
	if b, errno := c.call(cmdRegionRead, numbers(uint64(4), regionConfig, 1)); errno != 0 || b[16] != 7 {
		t.Errorf("REGION_READ of the configuration space: %x, %v", b, errno)
	}

	event := eventfd(t, unix.EFD_NONBLOCK)
	if _, errno := c.call(cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 2, 1), event); errno != 0 {
		t.Fatalf("DEVICE_SET_IRQS: %v", errno)
	}
	irq.Raise(2)
	irq.Raise(1) // nobody waits for it
	var count [8]byte
	if _, err := unix.Read(event, count[:]); err != nil || count[0] != 1 {
		t.Errorf("the eventfd counts %d, %v", count[0], err)
	}
	if _, errno := c.call(cmdSetIRQs, numbers(20, irqDataNone|irqActionTrigger, irqMSIX, 0, 0)); errno != 0 {
		t.Fatalf("DEVICE_SET_IRQS: %v", errno)
	}
	irq.Raise(2)
	if _, err := unix.Read(event, count[:]); err != unix.EAGAIN {
		t.Errorf("an interrupt after it was taken away: %v", err)
	}
	if _, errno := c.call(cmdDeviceReset, nil); errno != 0 {
		t.Errorf("DEVICE_RESET: %v", errno)
	}
	if _, _, resets := c.dev.Attached(); resets != 1 {
		t.Errorf("%d resets", resets)
	}
}

// TestRefusedCommands sends invalid commands. Each gets an error, and the next command is answered.
func TestRefusedCommands(t *testing.T) {
	c := newClient(t)
	fd := memfd(t, 1<<16)
	for _, test := range []struct {
		name    string
		command uint16
		payload []byte
		fds     []int
	}{
		{"an unknown command", 77, nil, nil},
		{"a short payload", cmdDMAMap, numbers(32, 3), nil},
		{"another version", cmdVersion, []byte{1, 0, 0, 0}, nil},
		{"a region that is not there", cmdRegionInfo, numbers(32, 0, 9, 0, uint64(0), uint64(0)), nil},
		{"beyond the end of a region", cmdRegionRead, numbers(uint64(0xfffd), regionBAR0, 4), nil},
		{"an offset that wraps around", cmdRegionRead, numbers(^uint64(0), regionConfig, 4), nil},
		{"a write without its bytes", cmdRegionWrite, numbers(uint64(0), regionBAR0, 4), nil},
		{"memory beyond the end of a file", cmdDMAMap, numbers(32, 3, uint64(0xf000), uint64(0), uint64(0x2000)), []int{fd}},
		{"memory that wraps around", cmdDMAMap, numbers(32, 3, uint64(0), ^uint64(0xfff), uint64(0x2000)), []int{fd}},
		{"memory at an odd offset of a file", cmdDMAMap, numbers(32, 3, uint64(1), uint64(0), uint64(0x1000)), []int{fd}},
		{"vectors that are not there", cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 3, 2), []int{fd, fd}},
		{"more vectors than eventfds", cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 0, 2), []int{fd}},
		{"a file for an eventfd", cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 0, 1), []int{fd}},
	} {
		if _, errno := c.call(test.command, test.payload, test.fds...); errno == 0 {
			t.Errorf("%s: no error", test.name)
		}
	}
	if _, errno := c.call(cmdDeviceInfo, nil); errno != 0 {
		t.Errorf("DEVICE_GET_INFO: %v", errno)
	}
}

// TestFullEventfd lets a client fill the counter of an eventfd, after it has made writes to it
// block, and go.
func TestFullEventfd(t *testing.T) {
	c := newClient(t)
	event := eventfd(t, 0)
	if _, errno := c.call(cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 0, 1), event); errno != 0 {
		t.Fatalf("DEVICE_SET_IRQS: %v", errno)
	}
	fatal.If(t, unix.SetNonblock(event, false))
	if _, err := unix.Write(event, le.AppendUint64(nil, ^uint64(1))); err != nil {
		t.Fatal(err)
	}
	_, irq, _ := c.dev.Attached()
	for range 2 {
		irq.Raise(0)
	}
	c.close()
}

func eventfd(t *testing.T, flags int) int {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|flags)
	fatal.If(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestClientGoes lets a client disconnect. It leaves no descriptors and no memory behind.
func TestClientGoes(t *testing.T) {
	before := descriptors(t)
	c := newClient(t)
	fd, event := memfd(t, 1<<16), eventfd(t, 0)
	for range 3 { // the last one is never answered
		c.call(cmdDMAMap, numbers(32, 3, uint64(0), uint64(0x100000), uint64(0x10000)), fd)
		if _, errno := c.call(cmdSetIRQs, numbers(20, irqDataEventfd|irqActionTrigger, irqMSIX, 0, 2), event, event); errno != 0 {
			t.Errorf("DEVICE_SET_IRQS: %v", errno)
		}
	}
	c.close()
	mem, _, resets := c.dev.Attached()
	if resets != 1 {
		t.Errorf("%d resets", resets)
	}
	if err := mem.Read(0x100000, make([]byte, 1)); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("reading the memory of a guest that has gone: %v", err)
	}
	if after := descriptors(t); after != before+2 { // the memfd and the eventfd
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	fatal.If(t, err)
	return len(names)
}

// FuzzMessages sends a stream of arbitrary bytes. The server must end or answer, and never
// panic.
func FuzzMessages(f *testing.F) {
	var c client
	for _, payload := range [][]byte{nil, numbers(16, 0, 0, 0), numbers(32, 3, uint64(0), uint64(0), uint64(0x1000)), numbers(20, 0x24, 2, 0, 1)} {
		for command := range uint16(14) {
			f.Add(c.message(command, payload, 0))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := newClient(t)
		go io.Copy(io.Discard, c.conn)
		c.conn.Write(stream)
		c.conn.CloseWrite()
		<-c.done
		c.done <- nil // for close
	})
}
