//go:build linux

package umlpci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/internal/hca/pci/transport/transporttest"
)

const (
	tableOffset = 0x2000 // of the MSI-X table in BAR 0
	msixControl = 0x62
)

func newDevice() *transporttest.Device {
	d := &transporttest.Device{}
	d.Config[0x34], d.Config[0x40], d.Config[0x41], d.Config[0x60] = 0x40, 0x10, 0x60, capMSIX // PCIe, then MSI-X
	le.PutUint32(d.Config[0x64:], tableOffset)
	return d
}

// The kernel's memory: for each queue the descriptors, the available and the used ring, then buffers.
const (
	base     = 0x100000 // address of the first byte
	memory   = 1 << 18
	entries  = 16
	queueLen = 0x3000
	buffers  = 0x10000
)

// kernel is the kernel's side of a connection.
type kernel struct {
	t       testing.TB
	conn    *net.UnixConn
	dev     *transporttest.Device
	done    chan error
	refused chan error
	file    int
	mem     []byte
	kicks   [queues]int
	calls   [queues][2]int // sockets, as the kernel has them: its end, and the server's
	added   [queues]uint16
	seen    [queues]uint16
	queue   [queues]queue // for the addresses
}

func newKernel(t testing.TB) *kernel {
	conn, socket := transporttest.Sockets(t)
	k := &kernel{t: t, conn: conn, dev: newDevice(), done: make(chan error, 1), refused: make(chan error, 100)}
	go func() {
		k.done <- Serve(context.Background(), socket, k.dev, func(err error) {
			select {
			case k.refused <- err:
			default:
			}
		})
	}()
	var err error
	k.file, err = unix.MemfdCreate("kernel", unix.MFD_CLOEXEC)
	check(t, err)
	check(t, unix.Ftruncate(k.file, memory))
	k.mem, err = unix.Mmap(k.file, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	for i := range k.queue {
		at := base + uint64(i)*queueLen
		k.queue[i] = queue{desc: at, avail: at + 0x1000, used: at + 0x2000}
		k.kicks[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		check(t, err)
		k.calls[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		check(t, err)
	}
	t.Cleanup(k.close)
	return k
}

// check ends a test with an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raise raises an interrupt of the device.
func (k *kernel) raise(vector int) {
	_, irq, _ := k.dev.Attached()
	irq.Raise(vector)
}

func (k *kernel) close() {
	if k.conn.Close() != nil {
		return
	}
	<-k.done
	unix.Munmap(k.mem)
	unix.Close(k.file)
	for i := range k.queue {
		unix.Close(k.kicks[i])
		unix.Close(k.calls[i][0])
		unix.Close(k.calls[i][1])
	}
}

// message encodes a request.
func message(request uint32, flags uint32, payload []byte) []byte {
	b := le.AppendUint32(nil, request)
	b = le.AppendUint32(b, version|flags)
	b = le.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

func words(v ...uint64) (b []byte) {
	for _, w := range v {
		b = le.AppendUint64(b, w)
	}
	return b
}

// call sends a request and returns the answer.
func (k *kernel) call(request uint32, payload []byte, fds ...int) uint64 {
	k.t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := k.conn.WriteMsgUnix(message(request, flagNeedReply, payload), rights, nil); err != nil {
		k.t.Fatal(err)
	}
	var b [headerSize + 8]byte
	if _, err := io.ReadFull(k.conn, b[:]); err != nil {
		k.t.Fatal(err)
	}
	if le.Uint32(b[0:]) != request || le.Uint32(b[4:]) != version|flagReply || le.Uint32(b[8:]) != 8 {
		k.t.Fatalf("answer %x to request %d", b, request)
	}
	return le.Uint64(b[headerSize:])
}

// start sends what Linux sends.
func (k *kernel) start() {
	k.t.Helper()
	ok := func(request uint32, payload []byte, fds ...int) {
		k.t.Helper()
		if v := k.call(request, payload, fds...); v != 0 {
			k.t.Fatalf("%s: %d", requestNames[request], v)
		}
	}
	ok(reqSetOwner, nil)
	if v := k.call(reqGetFeatures, nil); v != features {
		k.t.Fatalf("features %#x", v)
	}
	if v := k.call(reqGetProtocolFeatures, nil); v != protocolFeatures {
		k.t.Fatalf("protocol features %#x", v)
	}
	ok(reqSetProtocolFeatures, words(protocolFeatures))
	ok(reqSetBackendFD, nil, k.calls[0][1])
	ok(reqSetFeatures, words(features))
	ok(reqSetMemTable, words(1, base, memory, base, 0), k.file)
	for i := range uint64(queues) {
		ok(reqSetVringCall, words(i), k.calls[i][1])
		ok(reqSetVringNum, words(i|entries<<32))
		ok(reqSetVringBase, words(i))
		q := &k.queue[i]
		ok(reqSetVringAddr, words(i, q.desc, q.used, q.avail, ^uint64(0)))
	}
	for i := range uint64(queues) {
		ok(reqSetVringKick, words(i), k.kicks[i])
		ok(reqSetVringEnable, words(i|1<<32))
	}
}

// at returns the memory at an address.
func (k *kernel) at(addr uint64) []byte { return k.mem[addr-base:] }

// add puts a chain of a buffer to read and one to write into a queue, and kicks. It returns the
// address of the room.
func (k *kernel) add(index int, in []byte, room int) uint64 {
	q, n := &k.queue[index], k.added[index]
	slot := uint64(n%(entries/2)) * 2
	addr := base + buffers + uint64(index)*0x10000 + slot*0x800
	copy(k.at(addr), in)
	desc := func(i, addr uint64, n, flags int) {
		d := k.at(q.desc + i*descSize)
		le.PutUint64(d, addr)
		le.PutUint32(d[8:], uint32(n))
		le.PutUint16(d[12:], uint16(flags))
		le.PutUint16(d[14:], uint16(i+1))
	}
	head := slot
	switch {
	case len(in) == 0:
		head++
	case room == 0:
		desc(slot, addr, len(in), 0)
	default:
		desc(slot, addr, len(in), descNext)
	}
	if room != 0 {
		desc(slot+1, addr+0x800, room, descWrite)
	}
	le.PutUint16(k.at(q.avail+availRing+uint64(n%entries)*2), uint16(head))
	k.added[index]++
	le.PutUint16(k.at(q.avail+2), k.added[index])
	unix.Write(k.kicks[index], []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return addr + 0x800
}

// wait waits for the next chain that is given back, and returns how many bytes were written.
func (k *kernel) wait(index int) int {
	k.t.Helper()
	q := &k.queue[index]
	for end := time.Now().Add(10 * time.Second); le.Uint16(k.at(q.used+2)) == k.seen[index]; time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			k.t.Fatalf("queue %d: nothing comes back", index)
		}
	}
	n := le.Uint32(k.at(q.used + usedRing + uint64(k.seen[index]%entries)*usedSize + 4))
	k.seen[index]++
	return int(n)
}

func request(op byte, size int, addr uint64, data []byte) []byte {
	b := le.AppendUint32([]byte{op, 0, 0, 0}, uint32(size))
	return append(le.AppendUint64(b, addr), data...)
}

func (k *kernel) read(op byte, addr uint64, n int) []byte {
	k.t.Helper()
	room := k.add(accessQueue, request(op, n, addr, nil), 8)
	if got := k.wait(accessQueue); got != n {
		k.t.Fatalf("a read of %d bytes at %#x returned %d", n, addr, got)
	}
	return bytes.Clone(k.at(room)[:n])
}

func (k *kernel) write(op byte, addr uint64, data []byte) {
	k.t.Helper()
	k.add(accessQueue, request(op, len(data), addr, data), 0)
	k.wait(accessQueue)
}

// interrupt returns the next interrupt's data.
func (k *kernel) interrupt(room uint64) uint32 {
	k.t.Helper()
	if n := k.wait(interruptQueue); n != 20 || k.at(room)[0] != opMSI {
		k.t.Fatalf("an interrupt of %d bytes: %x", n, k.at(room)[:20])
	}
	return le.Uint32(k.at(room)[16:])
}

// A kernel sets up the queues, uses the registers and takes interrupts, and goes.
func TestConversation(t *testing.T) {
	before := descriptors(t)
	k := newKernel(t)
	k.start()
	k.write(opBARWrite, 0x20, []byte("doorbell"))
	if got := k.read(opBARRead, 0x20, 8); string(got) != "doorbell" {
		t.Errorf("BAR 0 holds %q", got)
	}
	k.write(opConfigWrite, 0x3c, []byte{7})
	if got := k.read(opConfigRead, 0x3c, 1); got[0] != 7 {
		t.Errorf("the configuration space holds %x", got)
	}

	// Vector 2 is described, first masked.
	const entry = tableOffset + 2*entrySize
	k.write(opBARWrite, entry, append(words(0xa0000), 77, 0, 0, 0))
	k.raise(2) // not enabled
	k.write(opConfigWrite, msixControl, []byte{0, 0x80})
	k.raise(2) // masked: it waits
	room := k.add(interruptQueue, nil, 20)
	k.write(opBARWrite, entry+12, make([]byte, 4))
	if v := k.interrupt(room); v != 77 {
		t.Errorf("interrupt %d", v)
	}
	if got := k.read(opBARRead, entry+8, 4); got[0] != 77 {
		t.Errorf("the table holds %x", got)
	}
	// Without a buffer, interrupts wait.
	k.raise(2)
	k.raise(2)
	if v := k.interrupt(k.add(interruptQueue, nil, 20)); v != 77 {
		t.Errorf("interrupt %d", v)
	}
	var told [8]byte
	if _, err := unix.Read(k.calls[interruptQueue][0], told[:]); err != nil {
		t.Errorf("the kernel is not told of interrupts: %v", err)
	}

	k.close()
	mem, _, resets := k.dev.Attached()
	if resets != 1 {
		t.Errorf("%d resets", resets)
	}
	if err := mem.Read(base, make([]byte, 1)); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("reading the memory of a kernel that has gone: %v", err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// The kernel frees the buffers of writes when it is told of them. It must be told before its queue
// is full.
func TestWritesAreTold(t *testing.T) {
	k := newKernel(t)
	k.start()
	for range entries / 2 {
		k.write(opBARWrite, 0x20, []byte("doorbell"))
	}
	var told [8]byte
	if _, err := unix.Read(k.calls[accessQueue][0], told[:]); err != nil {
		t.Errorf("after %d writes: %v", entries/2, err)
	}
}

func descriptors(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(names)
}

// Invalid requests are refused, and the next one is answered.
func TestRefusedRequests(t *testing.T) {
	k := newKernel(t)
	for _, test := range []struct {
		name    string
		request uint32
		payload []byte
		fds     []int
	}{
		{"an unknown request", 77, nil, nil},
		{"features without those that are needed", reqSetFeatures, words(featureProtocol), nil},
		{"features that are not offered", reqSetFeatures, words(features | 1), nil},
		{"memory without a descriptor", reqSetMemTable, words(1, base, memory, base, 0), nil},
		{"memory without its ranges", reqSetMemTable, words(1, base), []int{k.file}},
		{"memory beyond the end of a file", reqSetMemTable, words(1, base, memory, base, 0x1000), []int{k.file}},
		{"memory that wraps around", reqSetMemTable, words(1, ^uint64(0xfff), 0x2000, 0, 0), []int{k.file}},
		{"a queue that is not there", reqSetVringNum, words(2 | 16<<32), nil},
		{"an odd number of entries", reqSetVringNum, words(17 << 32), nil},
		{"a queue without entries", reqSetVringNum, words(0), nil},
		{"an address without its fields", reqSetVringAddr, words(0, 0), nil},
		{"a queue that was not described", reqSetVringEnable, words(1 << 32), nil},
		{"a channel without a descriptor", reqSetBackendFD, nil, nil},
	} {
		if v := k.call(test.request, test.payload, test.fds...); v == 0 {
			t.Errorf("%s: no error", test.name)
		}
	}
	k.start()
}

// Invalid accesses have no answer, and the next one is executed.
func TestRefusedAccesses(t *testing.T) {
	k := newKernel(t)
	k.start()
	for name, b := range map[string][]byte{
		"a short message":                   {opConfigRead, 0, 0, 0, 4, 0, 0, 0},
		"an unknown operation":              request(5, 4, 0, nil),
		"another BAR":                       append([]byte{opBARRead, 1}, request(0, 4, 0, nil)[2:]...),
		"no bytes":                          request(opBARRead, 0, 0, nil),
		"more bytes than there is room":     request(opBARRead, 9, 0, nil),
		"a write without its bytes":         request(opBARWrite, 9, 0, make([]byte, 8)),
		"beyond the configuration space":    request(opConfigRead, 4, transport.ConfigSize-2, nil),
		"beyond the BAR":                    request(opBARRead, 4, 1<<16-2, nil),
		"an address that wraps around":      request(opBARRead, 4, ^uint64(1), nil),
		"a write that wraps around the BAR": request(opBARWrite, 4, ^uint64(1), make([]byte, 4)),
	} {
		k.add(accessQueue, b, 8)
		if n := k.wait(accessQueue); n != 0 {
			t.Errorf("%s: %d bytes", name, n)
		}
		if err := <-k.refused; !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.read(opConfigRead, 0, 4)
}

// A queue that breaks the rules is not served any more, and the connection goes on.
func TestBrokenQueues(t *testing.T) {
	for name, breaks := range map[string]func(k *kernel, q *queue){
		"too many chains":      func(k *kernel, q *queue) { le.PutUint16(k.at(q.avail+2), entries+1) },
		"a descriptor outside": func(k *kernel, q *queue) { le.PutUint16(k.at(q.avail+availRing), entries) },
		"a loop":               func(k *kernel, q *queue) { le.PutUint32(k.at(q.desc+12), descNext) },
		"an indirect one":      func(k *kernel, q *queue) { le.PutUint32(k.at(q.desc+12), 4) },
		"too many bytes":       func(k *kernel, q *queue) { le.PutUint32(k.at(q.desc+8), 1<<20) },
		"no memory":            func(k *kernel, q *queue) { le.PutUint64(k.at(q.desc), 1) },
		"reading after room":   func(k *kernel, q *queue) { le.PutUint32(k.at(q.desc+12), descNext|descWrite|1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t)
			k.start()
			q := &k.queue[accessQueue]
			d := k.at(q.desc)
			le.PutUint64(d, base+buffers)
			le.PutUint32(d[8:], 16)
			le.PutUint16(k.at(q.avail+2), 1)
			breaks(k, q)
			unix.Write(k.kicks[accessQueue], []byte{1, 0, 0, 0, 0, 0, 0, 0})
			select {
			case err := <-k.refused:
				t.Log(err)
			case <-time.After(10 * time.Second):
				t.Error("nothing is refused")
			}
			if v := k.call(reqSetOwner, nil); v != 0 {
				t.Errorf("SET_OWNER: %d", v)
			}
		})
	}
}
