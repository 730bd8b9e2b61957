package overrdma

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

var le = binary.LittleEndian

const (
	testNQN  = "nqn.2026-01.org.example:test"
	hostNQN  = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
	hostAddr = "192.0.2.2"
)

// memory is a medium in memory.
type memory struct {
	mu      sync.Mutex
	b       []byte
	flushes int
	trimmed []int64 // offsets and lengths
	err     error   // of writes, flushes and trims
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.b[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, m.err
	}
	return copy(m.b[off:], p), nil
}

func (m *memory) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushes++
	return m.err
}

func (m *memory) Trim(off, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimmed = append(m.trimmed, off, n)
	return m.err
}

// lab is a target and the network of its hosts.
type lab struct {
	t      *testing.T
	net    *inproc.Network
	server *Server
	at     netip.AddrPort
	ended  chan error
	stop   context.CancelFunc

	mu     sync.Mutex
	failed []error
}

func newLab(t *testing.T, o nvmet.Options) *lab {
	t.Helper()
	o.NQN, o.CapsuleData = testNQN, CapsuleData
	target, err := nvmet.New(o)
	fatal.If(t, err)
	l := &lab{t: t, net: inproc.NewNetwork(nil), ended: make(chan error, 1)}
	dev := l.device("192.0.2.1")
	l.server, err = Listen(dev, 4420, target, func(_ net.Addr, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = append(l.failed, err)
	})
	fatal.If(t, err)
	l.at = l.server.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	go func() { l.ended <- l.server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-l.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returned %v", err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) device(a string) *verbs.Device {
	l.t.Helper()
	at := netip.MustParseAddr(a)
	return must(l.t, func() (*verbs.Device, error) {
		conn, err := l.net.Listen(netip.AddrPortFrom(at, 4791))
		if err != nil {
			return nil, err
		}
		return verbs.Open(at, &verbs.DeviceOptions{Conn: conn})
	})
}

// host is a host with its device.
type testHost struct {
	*lab
	dev     *verbs.Device
	pd      *verbs.PD
	timeout time.Duration // of connections, for both sides; 0: the default
}

func (l *lab) host(a string) *testHost {
	l.t.Helper()
	h := &testHost{lab: l, dev: l.device(a)}
	h.pd = must(l.t, h.dev.NewPD)
	return h
}

func (h *testHost) register(data []byte, access rdma.Access) *verbs.MR {
	h.t.Helper()
	return must(h.t, func() (*verbs.MR, error) { return h.pd.Register(data, access) })
}

func must[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	v, err := f()
	fatal.If(t, err)
	return v
}

// queue is a queue of a host.
type queue struct {
	h          *testHost
	qp         *verbs.QP
	sent, rcvd *verbs.CQ
	conn       *cm.Conn
	msg        *verbs.MR
	id         uint16
}

// dial connects a queue pair. The queue has room for size commands.
func (h *testHost) dial(r nvme.CMRequest, private ...byte) (*queue, error) {
	h.t.Helper()
	q := &queue{h: h}
	q.sent = must(h.t, func() (*verbs.CQ, error) { return h.dev.NewCQ(512) })
	q.rcvd = must(h.t, func() (*verbs.CQ, error) { return h.dev.NewCQ(512) })
	q.qp = must(h.t, func() (*verbs.QP, error) {
		return h.pd.NewQP(verbs.QPAttr{SendCQ: q.sent, RecvCQ: q.rcvd, MaxInlineData: 4096, MaxSendWR: 256, MaxRecvWR: 256})
	})
	q.msg = h.register(make([]byte, 256*nvme.CompletionSize), rdma.LocalWrite)
	fatal.If(h.t, q.qp.Init(rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead))
	for i := range 256 {
		q.receive(i)
	}
	if private == nil {
		for _, v := range []uint16{r.Format, r.QID, r.HRQSize, r.HSQSize, r.CNTLID} {
			private = le.AppendUint16(private, v)
		}
		private = append(private, make([]byte, 22)...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if q.conn, err = cm.Dial(ctx, q.qp, h.at, &cm.ConnOptions{PrivateData: private, ConnectOptions: verbs.ConnectOptions{Timeout: h.timeout}}); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

func (q *queue) close() {
	if q.conn != nil {
		q.conn.Close()
	}
	q.qp.Close()
	q.msg.Close()
	q.sent.Close()
	q.rcvd.Close()
}

func (q *queue) receive(i int) {
	if _, err := q.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []rdma.SGE{q.msg.SGE(i*nvme.CompletionSize, nvme.CompletionSize)}}); err != nil {
		q.h.t.Error(err)
	}
}

// post sends a capsule: a command and data.
func (q *queue) post(c *nvme.Command, data []byte) error {
	c.Flags |= 1 << 6
	capsule := append(c.Append(nil), data...)
	for wcs := [16]rdma.WC{}; q.sent.Poll(wcs[:]) > 0; { // completions of earlier capsules
	}
	if len(capsule) <= 4096 {
		return q.qp.Start().Signaled().Send().Inline(capsule).Complete()
	}
	mr, err := q.h.pd.Register(capsule, rdma.LocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()
	if err := q.qp.Start().Signaled().Send().SGE(mr.SGE(0, len(capsule))).Complete(); err != nil {
		return err
	}
	var wc [1]rdma.WC
	_, err = q.sent.Wait(context.Background(), wc[:])
	return errors.Join(err, wc[0].Err)
}

// answer waits for a completion. ok is false if the connection has ended.
func (q *queue) answer() (done nvme.Completion, wc rdma.WC, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wcs [1]rdma.WC
	if _, err := q.rcvd.Wait(ctx, wcs[:]); err != nil {
		q.h.t.Errorf("no answer: %v", err)
		return done, wc, false
	}
	if wcs[0].Status != rdma.StatusSuccess {
		return done, wcs[0], false
	}
	b := q.msg.Bytes()[wcs[0].ID*nvme.CompletionSize:]
	done = nvme.Completion{Result: le.Uint64(b), SQHead: le.Uint16(b[8:]), ID: le.Uint16(b[12:]), Status: nvme.Status(le.Uint16(b[14:]) >> 1)}
	q.receive(int(wcs[0].ID))
	return done, wcs[0], true
}

// exec executes a command and returns its completion. data is the host's memory, which the target reads and
// writes.
func (q *queue) exec(c nvme.Command, data []byte) nvme.Completion {
	q.h.t.Helper()
	q.id++
	c.ID = q.id
	if c.SGL == (nvme.SGL{}) {
		c.SGL.Type = nvme.KeyedBlock
	}
	if len(data) > 0 {
		mr := q.h.register(data, rdma.LocalWrite|rdma.RemoteRead|rdma.RemoteWrite)
		defer mr.Close()
		c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: mr.Addr(), Length: uint32(len(data)), Key: mr.RKey()}
	}
	fatal.If(q.h.t, q.post(&c, nil))
	done, _, ok := q.answer()
	if !ok {
		q.h.t.Fatalf("command %#x: the connection has ended", c.Opcode)
	}
	if done.ID != c.ID {
		q.h.t.Fatalf("an answer to command %d instead of %d", done.ID, c.ID)
	}
	return done
}

// must executes a command that must succeed.
func (q *queue) must(c nvme.Command, data []byte) uint64 {
	q.h.t.Helper()
	done := q.exec(c, data)
	if done.Status != nvme.Success {
		q.h.t.Fatalf("command %#x: %v", c.Opcode, done.Status)
	}
	return done.Result
}

// want executes a command that must have a status, apart from DNR.
func (q *queue) want(what string, c nvme.Command, data []byte, status nvme.Status) {
	q.h.t.Helper()
	if s := q.exec(c, data).Status &^ nvme.DNR; s != status {
		q.h.t.Errorf("%s: status %v, want %v", what, s, status)
	}
}

// connectData is the data of Connect.
func connectData(controller uint16, subsystem string) []byte {
	b := make([]byte, nvme.ConnectDataSize)
	copy(b, "a test's host id")
	le.PutUint16(b[16:], controller)
	copy(b[256:], subsystem)
	copy(b[512:], hostNQN)
	return b
}

// connectDataOf is the data of a host with another name, which asks for a new controller.
func connectDataOf(host, subsystem string) []byte {
	b := connectData(nvme.AnyController, subsystem)
	clear(b[512:])
	copy(b[512:], host)
	return b
}

// connectCommand is Connect.
func connectCommand(qid, size uint16, kato uint32) nvme.Command {
	return nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.Connect, DW: [6]uint32{uint32(qid) << 16, uint32(size - 1), kato}}
}

// queue connects a queue of a controller.
func (h *testHost) queue(qid, size, controller uint16, subsystem string, kato uint32) (*queue, uint16) {
	h.t.Helper()
	q, err := h.dial(nvme.CMRequest{QID: qid, HRQSize: size, HSQSize: size - 1})
	fatal.If(h.t, err)
	return q, uint16(q.must(connectCommand(qid, size, kato), connectData(controller, subsystem)))
}

func property(kind uint32, offset uint32, wide bool, value uint64) nvme.Command {
	c := nvme.Command{Opcode: nvme.FabricsClass, NSID: kind, DW: [6]uint32{0, offset, uint32(value), uint32(value >> 32)}}
	if wide {
		c.DW[0] = 1
	}
	return c
}

// admin connects an admin queue and enables its controller.
func (h *testHost) admin(subsystem string) (*queue, uint16) {
	h.t.Helper()
	q, id := h.queue(0, 32, nvme.AnyController, subsystem, 0)
	q.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16|1), nil)
	if v := q.must(property(nvme.PropertyGet, nvme.CSTS, false, 0), nil); v != 1 {
		h.t.Fatalf("CSTS is %#x", v)
	}
	return q, id
}

// both connects an admin queue and an I/O queue. They are closed with the test.
func (l *lab) both() (admin, io *queue) {
	l.t.Helper()
	h := l.host(hostAddr)
	admin, id := h.admin(testNQN)
	io, _ = h.queue(1, 128, id, testNQN, 0)
	l.t.Cleanup(func() {
		io.close()
		admin.close()
		h.pd.Close()
		if err := h.dev.Close(); err != nil {
			l.t.Error(err)
		}
	})
	return admin, io
}

// rw is a command that names blocks.
func rw(op nvme.Opcode, lba uint64, blocks int, prinfo uint8, ref uint32, app, mask uint16) nvme.Command {
	return nvme.Command{Opcode: op, NSID: 1, DW: [6]uint32{uint32(lba), uint32(lba >> 32), uint32(blocks-1) | uint32(prinfo)<<26, 0, ref, uint32(mask)<<16 | uint32(app)}}
}
