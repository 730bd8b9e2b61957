//go:build linux

package vm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/pci/recorded"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// Messages of vfio-user and their sizes.
const (
	msgVersion     = 1
	msgDMAMap      = 2
	msgDMAUnmap    = 3
	msgSetIRQs     = 8
	msgRegionRead  = 9
	msgRegionWrite = 10
	msgReset       = 13
	msgHeader      = 16
	msgNoReply     = 1 << 4

	bar0, configuration = 0, 7
)

// The guest's memory is parts of one file. Bytes of the file between the parts are not the
// guest's: they hold a pattern that must stay there and nowhere else.
const (
	lowMemory   = 512 << 20 // from address 0 on; that of the recorded boot
	driverAt    = 1 << 32   // the driver's own queue and buffers
	driverSize  = 16 << 20
	readOnlyAt  = 2 << 32 // can only be read
	passingAt   = 3 << 32 // comes and goes
	unreachable = 4 << 32 // of another device
	partSize    = 1 << 20
	gap         = 1 << 20

	fileLow      = gap
	fileDriver   = fileLow + lowMemory + gap
	fileReadOnly = fileDriver + driverSize + gap
	filePassing  = fileReadOnly + partSize + gap
	fileSize     = filePassing + partSize + gap
)

// secret is the pattern of bytes that are not the guest's.
var secret = []byte("not the guest's ")

// monitor is a client of a vfio-user socket, as QEMU is, with the guest's memory and as much of
// its driver as executes commands.
type monitor struct {
	conn *net.UnixConn
	file int
	all  []byte // the file
	id   uint16
	room uint64 // of the driver's memory: the next free address
}

const (
	driverQueue = driverAt
	driverIn    = driverAt + 0x10000 // mailboxes
	driverOut   = driverIn + 2<<20 + 4<<10
	driverRoom  = driverAt + 6<<20

	regQueueHigh, regQueueLow, regDoorbell, regHealth = 0x10, 0x14, 0x18, 0x23c
)

// connect connects to an adapter and maps the memory.
func connect(path string) (m *monitor, err error) {
	m = &monitor{file: -1, room: driverRoom}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return m, err
	}
	if m.file, err = unix.MemfdCreate("guest", unix.MFD_CLOEXEC); err != nil {
		return m, err
	}
	if err = unix.Ftruncate(m.file, fileSize); err != nil {
		return m, err
	}
	if m.all, err = unix.Mmap(m.file, 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return m, err
	}
	for _, hole := range holes() {
		for at := hole; at < hole+gap; at += len(secret) {
			copy(m.all[at:], secret)
		}
	}
	if _, err = m.call(msgVersion, append([]byte{0, 0, 0, 0}, "{}\x00"...)); err != nil {
		return m, err
	}
	for _, r := range []struct{ addr, size, off, flags uint64 }{
		{0, lowMemory, fileLow, 3}, {driverAt, driverSize, fileDriver, 3}, {readOnlyAt, partSize, fileReadOnly, 1}, {passingAt, partSize, filePassing, 3},
	} {
		if err = m.mapping(r.addr, r.size, r.off, uint32(r.flags), m.file); err != nil {
			return m, err
		}
	}
	return m, m.mapping(unreachable, partSize, 0, 3)
}

// holes are the offsets of the gaps in the file.
func holes() []int {
	return []int{0, fileDriver - gap, fileReadOnly - gap, filePassing - gap, fileSize - gap}
}

func (m *monitor) close() {
	if m.conn != nil {
		m.conn.Close()
	}
	if m.all != nil {
		unix.Munmap(m.all)
	}
	if m.file >= 0 {
		unix.Close(m.file)
	}
}

// send sends a message with descriptors.
func (m *monitor) send(command uint16, flags uint32, payload []byte, fds ...int) error {
	m.id++
	b := le.AppendUint32(nil, uint32(command)<<16|uint32(m.id))
	b = le.AppendUint32(b, uint32(msgHeader+len(payload)))
	b = le.AppendUint32(b, flags)
	b = append(le.AppendUint32(b, 0), payload...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := m.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// refused is an answer with an error.
type refused unix.Errno

func (e refused) Error() string { return unix.Errno(e).Error() }

// call sends a message and returns the payload of its answer.
func (m *monitor) call(command uint16, payload []byte, fds ...int) ([]byte, error) {
	if err := m.send(command, 0, payload, fds...); err != nil {
		return nil, err
	}
	m.conn.SetReadDeadline(time.Now().Add(time.Minute))
	var head [msgHeader]byte
	if _, err := io.ReadFull(m.conn, head[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, max(0, int(le.Uint32(head[4:]))-msgHeader))
	if _, err := io.ReadFull(m.conn, answer); err != nil {
		return nil, err
	}
	if id := le.Uint16(head[:]); id != m.id {
		return nil, fmt.Errorf("an answer to message %d instead of %d", id, m.id)
	}
	if errno := le.Uint32(head[12:]); errno != 0 {
		return nil, refused(errno)
	}
	return answer, nil
}

func (m *monitor) mapping(addr, size, off uint64, flags uint32, fds ...int) error {
	b := le.AppendUint32(le.AppendUint32(nil, 32), flags)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, off), addr), size)
	_, err := m.call(msgDMAMap, b, fds...)
	return err
}

func (m *monitor) unmap(addr, size uint64) error {
	_, err := m.call(msgDMAUnmap, le.AppendUint64(le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, 24), 0), addr), size))
	return err
}

func region(off uint64, region, n int, data []byte) []byte {
	b := le.AppendUint32(le.AppendUint32(le.AppendUint64(nil, off), uint32(region)), uint32(n))
	return append(b, data...)
}

// write writes to a register without waiting.
func (m *monitor) write(off uint64, data []byte) error {
	return m.send(msgRegionWrite, msgNoReply, region(off, bar0, len(data), data))
}

func (m *monitor) write32(off uint64, v uint32) error {
	return m.write(off, be.AppendUint32(nil, v))
}

func (m *monitor) read32(off uint64) (uint32, error) {
	b, err := m.call(msgRegionRead, region(off, bar0, 4, nil))
	if err != nil || len(b) < 20 {
		return 0, fmt.Errorf("%d bytes of a register, %w", len(b), err)
	}
	return be.Uint32(b[16:]), nil
}

// at returns the guest's memory from an address on.
func (m *monitor) at(addr uint64) []byte {
	if addr >= driverAt {
		return m.all[fileDriver:][addr-driverAt:][:driverAt+driverSize-addr]
	}
	return m.all[fileLow:][addr:lowMemory]
}

// alloc returns the address of n bytes of the driver's memory. They begin with a page.
func (m *monitor) alloc(n int) uint64 {
	addr := m.room
	m.room += uint64(n+4095) &^ 4095
	return addr
}

// The entry of the command queue.
const (
	slotSize = 64
	token    = 0x5a
)

// boxes lays data out in mailboxes.
func (m *monitor) boxes(at uint64, n int, data []byte) uint64 {
	if n <= 0 {
		return 0
	}
	first := at
	for i := uint32(0); n > 0; i++ {
		box := m.at(at)[:0x240]
		clear(box)
		if len(data) > 0 {
			data = data[copy(box[:512], data):]
		}
		if n -= 512; n > 0 {
			be.PutUint64(box[0x230:], at+1024)
		}
		be.PutUint32(box[0x238:], i)
		box[0x23d] = token
		at += 1024
	}
	return first
}

// master sets the bit Bus Master Enable.
func (m *monitor) master(on bool) error {
	b := []byte{0, 0}
	if on {
		b[0] = 1 << 2
	}
	_, err := m.call(msgRegionWrite, region(4, configuration, len(b), b))
	return err
}

// queue makes the adapter a bus master and tells it where the command queue is.
func (m *monitor) queue() error {
	if err := m.master(true); err != nil {
		return err
	}
	if err := m.write32(regQueueHigh, driverQueue>>32); err != nil {
		return err
	}
	return m.write32(regQueueLow, driverQueue&0xffffffff)
}

// errUnhealthy is the end of a command that is not answered, because the adapter has reported a
// fatal error.
var errUnhealthy = fmt.Errorf("the adapter is not healthy")

// exec executes a command. The error is of the delivery; the answer has a status, too.
func (m *monitor) exec(in []byte, outLen int) ([]byte, error) {
	e := m.at(driverQueue)[:slotSize]
	clear(e)
	e[0] = 7
	be.PutUint32(e[4:], uint32(len(in)))
	copy(e[16:32], in)
	if len(in) > 16 {
		be.PutUint64(e[8:], m.boxes(driverIn, len(in)-16, in[16:]))
	}
	be.PutUint64(e[48:], m.boxes(driverOut, outLen-16, nil))
	be.PutUint32(e[56:], uint32(outLen))
	e[60], e[63] = token, 1
	if err := m.write32(regDoorbell, 1); err != nil {
		return nil, err
	}
	// The read of a register waits until the socket's messages before it were read.
	for end := time.Now().Add(time.Minute); ; {
		health, err := m.read32(regHealth)
		if err != nil {
			return nil, err
		}
		if e[63]&1 == 0 {
			break
		}
		if health != 0 {
			return nil, errUnhealthy
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("command %x was not answered", in[:min(16, len(in))])
		}
	}
	if status := e[63] >> 1; status != 0 {
		return nil, fmt.Errorf("delivery status %#x of command %x", status, in[:min(16, len(in))])
	}
	out := append([]byte(nil), e[32:32+min(16, outLen)]...)
	for at := uint64(driverOut); len(out) < outLen; at += 1024 {
		out = append(out, m.at(at)[:min(512, outLen-len(out))]...)
	}
	return out, nil
}

// must executes a command that succeeds.
func (m *monitor) must(in []byte, outLen int) ([]byte, error) {
	out, err := m.exec(in, outLen)
	if err == nil && out[0] != 0 {
		op, _ := prm.OpcodeOf(in)
		err = fmt.Errorf("%v: status %#x, syndrome %#x", op, out[0], be.Uint32(out[4:]))
	}
	return out, err
}

// boot resets the adapter, takes it to where the recorded boot made its first QP, and gives the guest its address.
func (m *monitor) boot(record []recorded.Command) error {
	if _, err := m.call(msgReset, nil); err != nil {
		return err
	}
	m.room = driverRoom
	if err := m.queue(); err != nil {
		return err
	}
	const outOfBuffer = 0x30 // in the answer of QUERY_Q_COUNTER
	for _, c := range record {
		op, _ := prm.OpcodeOf(c.In)
		if op == prm.CmdCreateQP {
			break
		}
		out, err := m.exec(c.In, len(c.Out))
		if err != nil {
			return fmt.Errorf("line %d of the recorded boot: %w", c.Line, err)
		}
		if op == prm.CmdQueryQCounter { // a frame that comes meanwhile finds no buffer: the boot posts none
			clear(out[outOfBuffer : outOfBuffer+4])
		}
		for i := range out {
			if out[i] != c.Out[i] {
				return fmt.Errorf("line %d of the recorded boot, %v: byte %#x is %#x, want %#x", c.Line, op, i, out[i], c.Out[i])
			}
		}
	}
	return m.address()
}

// guestQueue is a connected QP with a CQ of its own. Its queues are in the driver's memory.
type guestQueue struct {
	m                 *monitor
	number, pd, dma   uint32
	cqn               uint32
	ring, record      uint64
	entries, cqRecord uint64
	head, completions uint32
}

const (
	blocks     = 64 // of the send queue, and entries of the CQ
	recvBytes  = 16 * 64
	anyUAR     = 16
	ownAddress = 3 // entry of the table of RoCE addresses
)

// guestIP and guestMAC are the guest's addresses, and peerIP is one of nobody.
var (
	guestIP  = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 1}
	peerIP   = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 2}
	guestMAC = [6]byte{2, 0, 0, 0, 0, 1} // that of the recorded boot
	peerMAC  = [6]byte{2, 0, 0, 0, 0, 9}
)

func command(op prm.Command, n int) []byte {
	in := make([]byte, n)
	prm.PutCommand(in, op, 0)
	return in
}

// fourPSVs returns the command that makes four PSVs.
func fourPSVs(pd uint32) []byte {
	in := command(prm.CmdCreatePSV, 16)
	prm.SetBits(in, 0x40, 4, 4)
	prm.SetBits(in, 0x48, 24, uint64(pd))
	return in
}

// newQueue makes a QP, in the PD of another one or in one of its own that has a key for all of
// the memory.
func (m *monitor) newQueue(service uint8, other *guestQueue) (*guestQueue, error) {
	q := &guestQueue{m: m}
	if other != nil {
		q.pd, q.dma = other.pd, other.dma
	} else if err := q.domain(); err != nil {
		return nil, err
	}
	q.ring, q.record, q.entries, q.cqRecord = m.alloc(recvBytes+blocks*64), m.alloc(8), m.alloc(blocks*64), m.alloc(8)
	clear(m.at(q.record)[:8])
	clear(m.at(q.cqRecord)[:8])
	for i := range blocks {
		m.at(q.entries)[i*64+63] = 0xf1
	}
	in := command(prm.CmdCreateCQ, 0x118)
	prm.CQContext{LogSize: 6, UAR: anyUAR, EQN: 1, DBAddr: q.cqRecord}.Put(in)
	be.PutUint64(in[0x110:], q.entries)
	out, err := m.must(in, 16)
	if err != nil {
		return nil, err
	}
	q.cqn = prm.NumberOf(out)
	c := prm.QPContext{Service: service, PD: q.pd, UAR: anyUAR, UserIndex: 0xffffff, SendCQ: q.cqn, RecvCQ: q.cqn, LogSQSize: 6, LogRQSize: 4, LogRQStride: 2, DBAddr: q.record}
	in = command(prm.CmdCreateQP, 0x120)
	pages := 2
	if service == prm.QPServiceUMR {
		c.PD, c.RQType, c.LogRQSize, c.LogRQStride, pages = 0, prm.RQNone, 0, 0, 1
	}
	prm.PutQP(in, &c)
	for i := range pages {
		be.PutUint64(in[0x110+8*i:], q.ring+uint64(4096*i))
	}
	if out, err = m.must(in, 16); err != nil {
		return nil, err
	}
	q.number = prm.NumberOf(out)
	return q, nil
}

// domain makes a PD and a key for physical addresses.
func (q *guestQueue) domain() error {
	out, err := q.m.must(command(prm.CmdAllocPD, 16), 16)
	if err != nil {
		return err
	}
	q.pd = prm.NumberOf(out)
	in := command(prm.CmdCreateMKey, 272)
	for _, f := range [][3]uint64{{0x11, 5, 31}, {0x20, 24, 0xffffff}, {0x38, 8, 3}, {0x60, 1, 1}, {0x68, 24, uint64(q.pd)}} {
		prm.SetBits(in, 0x80+int(f[0]), int(f[1]), f[2])
	}
	if out, err = q.m.must(in, 16); err != nil {
		return err
	}
	q.dma = prm.NumberOf(out)<<8 | 3
	return nil
}

// move changes the state of the QP.
func (q *guestQueue) move(op prm.Command, c prm.QPContext) error {
	in := command(op, 0x110)
	prm.PutQP(in, &c)
	prm.PutNumber(in, q.number)
	_, err := q.m.must(in, 16)
	return err
}

// connect takes a QP to RTS, with a peer QP behind an address.
func (q *guestQueue) connect(peer uint32, gid [16]byte, mac [6]byte) error {
	if err := q.move(prm.CmdRst2InitQP, prm.QPContext{PD: q.pd, Path: prm.Path{Port: 1}, Read: true, Write: true, Atomic: true}); err != nil {
		return err
	}
	if err := q.move(prm.CmdInit2RTRQP, prm.QPContext{MTU: 3, PD: q.pd, RemoteQPN: peer, NextRecvPSN: 7, MinRNRNAK: 1, LogRRAMax: 3, Path: prm.Path{Port: 1, GID: gid, MAC: mac, SourceIndex: ownAddress, HopLimit: 64, UDPPort: 0xc000}}); err != nil {
		return err
	}
	return q.move(prm.CmdRTR2RTSQP, prm.QPContext{NextSendPSN: 7, RetryCount: 7, RNRRetry: 7, LogSRAMax: 3, Path: prm.Path{AckTimeout: 14}})
}

// address gives the guest a RoCE address.
func (m *monitor) address() error {
	in := command(prm.CmdSetRoCEAddress, 0x30)
	prm.SetBits(in, 0x40, 16, ownAddress)
	copy(in[0x10:], guestIP[:])
	copy(in[0x22:], guestMAC[:])
	prm.SetBits(in[0x10:], 0xd8, 8, 2)
	_, err := m.must(in, 16)
	return err
}

// post puts a request of up to 64 bytes into the send queue and rings.
func (q *guestQueue) post(op prm.Opcode, segments ...[]byte) error {
	b := bytes.Join(segments, nil)
	w := be.AppendUint32(nil, q.head&0xffff<<8|uint32(op))
	w = be.AppendUint32(w, q.number<<8|uint32(1+len(b)/16))
	w = append(be.AppendUint32(be.AppendUint32(w, prm.FlagCQUpdate), 0), b...)
	recv := uint64(recvBytes)
	copy(q.m.at(q.ring + recv + uint64(q.head%blocks)*64)[:64], w)
	q.head++
	be.PutUint32(q.m.at(q.record+4), q.head&0xffff)
	return q.m.write(anyUAR*4096+prm.UARBlue, w[:8])
}

// wait waits for the next completion.
func (q *guestQueue) wait() (prm.CQE, error) {
	e := q.m.at(q.entries)[q.completions%blocks*64:][:64]
	for end := time.Now().Add(time.Minute); ; {
		c, owner := prm.ParseCQE(e)
		if c.Opcode != prm.CQEInvalid && uint32(owner) == q.completions/blocks&1 {
			q.completions++
			be.PutUint32(q.m.at(q.cqRecord), q.completions&0xffffff)
			return c, nil
		}
		if time.Now().After(end) {
			return c, fmt.Errorf("no completion of QP %#x", q.number)
		}
		if _, err := q.m.read32(regHealth); err != nil { // instead of an interrupt
			return c, err
		}
	}
}

func remote(addr uint64, key uint32) []byte {
	return be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, addr), key), 0)
}

func data(n uint32, key uint32, addr uint64) []byte {
	return be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, n), key), addr)
}

// traffic is RDMA of a guest to itself.
type traffic struct {
	a, b     *guestQueue
	from, to uint64
	round    byte
}

const trafficBytes = 4096

// newTraffic boots the adapter and connects two QPs.
func (m *monitor) newTraffic(record []recorded.Command) (*traffic, error) {
	if err := m.boot(record); err != nil {
		return nil, err
	}
	t := &traffic{}
	var err error
	if t.a, err = m.newQueue(prm.QPServiceRC, nil); err != nil {
		return nil, err
	}
	if t.b, err = m.newQueue(prm.QPServiceRC, nil); err != nil {
		return nil, err
	}
	if err := t.a.connect(t.b.number, guestIP, guestMAC); err != nil {
		return nil, err
	}
	t.from, t.to = m.alloc(trafficBytes), m.alloc(trafficBytes)
	return t, t.b.connect(t.a.number, guestIP, guestMAC)
}

// once writes a page by RDMA and compares.
func (t *traffic) once() error {
	t.round++
	from, to := t.a.m.at(t.from)[:trafficBytes], t.a.m.at(t.to)[:trafficBytes]
	for i := range from {
		from[i] = byte(i*7) + t.round
	}
	if err := t.a.post(prm.OpWrite, remote(t.to, t.b.dma), data(trafficBytes, t.a.dma, t.from)); err != nil {
		return err
	}
	c, err := t.a.wait()
	switch {
	case err != nil:
		return err
	case c.Opcode != prm.CQERequester:
		return fmt.Errorf("completion %+v", c)
	case !bytes.Equal(from, to):
		return fmt.Errorf("round %d: the bytes that arrived are not those that were sent", t.round)
	}
	return nil
}
