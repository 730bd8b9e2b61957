package pitable

import (
	"context"
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// Queue is a queue of a host of NVMe over RDMA, with one command in flight. It ends the test after an error.
type Queue struct {
	t          testing.TB
	pd         *verbs.PD
	qp         *verbs.QP
	sent, rcvd *verbs.CQ
	conn       *cm.Conn
	answer, mr *verbs.MR
	id         uint16
}

const queueSize = 32

var le = binary.LittleEndian

// opened returns what was opened, and closes it with the test.
func opened[T io.Closer](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		})
		return v
	}
}

// Host is a host of a subsystem at an address.
type Host struct {
	testing.TB
	Dev       *verbs.Device
	At        netip.AddrPort
	Subsystem string
	NQN       string // of the host
}

// Dial connects queue number qid of a controller, and returns the controller's number. AnyController makes one.
func (h *Host) Dial(qid, controller uint16) (*Queue, uint16) {
	t, dev := h.TB, h.Dev
	t.Helper()
	q := &Queue{t: t, pd: opened[*verbs.PD](t)(dev.NewPD())}
	q.sent, q.rcvd = opened[*verbs.CQ](t)(dev.NewCQ(queueSize)), opened[*verbs.CQ](t)(dev.NewCQ(queueSize))
	q.qp = opened[*verbs.QP](t)(q.pd.NewQP(verbs.QPAttr{SendCQ: q.sent, RecvCQ: q.rcvd, MaxInlineData: nvme.CommandSize}))
	q.answer = opened[*verbs.MR](t)(q.pd.Register(make([]byte, nvme.CompletionSize), rdma.LocalWrite))
	q.mr = opened[*verbs.MR](t)(q.pd.Register(make([]byte, 8192), rdma.LocalWrite|rdma.RemoteRead|rdma.RemoteWrite))
	if err := q.qp.Init(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead); err != nil {
		t.Fatal(err)
	}
	private := make([]byte, 32)
	le.PutUint16(private[2:], qid)
	le.PutUint16(private[4:], queueSize)
	le.PutUint16(private[6:], queueSize-1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.conn = opened[*cm.Conn](t)(cm.Dial(ctx, q.qp, h.At, &cm.ConnOptions{PrivateData: private}))

	data := make([]byte, nvme.ConnectDataSize)
	copy(data, "a host in a test")
	le.PutUint16(data[16:], controller)
	copy(data[256:], h.Subsystem)
	copy(data[512:], h.NQN)
	return q, uint16(q.Must(nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.Connect, DW: [6]uint32{uint32(qid) << 16, queueSize - 1}}, data))
}

// Exec executes a command. data is the host's memory, which the target reads and writes. The status is without the bits
// that are not part of the code.
func (q *Queue) Exec(c nvme.Command, data []byte) (uint64, nvme.Status) {
	q.t.Helper()
	if _, err := q.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{q.answer.SGE(0, nvme.CompletionSize)}}); err != nil {
		q.t.Fatal(err)
	}
	q.id++
	c.ID, c.Flags = q.id, 1<<6 // the data pointer is an SGL
	c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: q.mr.Addr(), Length: uint32(len(data)), Key: q.mr.RKey()}
	copy(q.mr.Bytes(), data)
	if err := q.qp.Start().Signaled().Send().Inline(c.Append(nil)).Complete(); err != nil {
		q.t.Fatal(err)
	}
	for _, cq := range []*verbs.CQ{q.sent, q.rcvd} {
		ctx, cancel := context.WithTimeout(q.t.Context(), time.Minute)
		var wc [1]rdma.WC
		_, err := cq.Wait(ctx, wc[:])
		cancel()
		if err != nil || wc[0].Err != nil {
			q.t.Fatalf("command %#x: %v %v", c.Opcode, err, wc[0].Err)
		}
	}
	copy(data, q.mr.Bytes())
	b := q.answer.Bytes()
	if id := le.Uint16(b[12:]); id != q.id {
		q.t.Fatalf("an answer to command %d instead of %d", id, q.id)
	}
	return le.Uint64(b), nvme.Status(le.Uint16(b[14:]) >> 1 & 0x7ff)
}

// Must executes a command that must succeed.
func (q *Queue) Must(c nvme.Command, data []byte) uint64 {
	q.t.Helper()
	result, status := q.Exec(c, data)
	if status != nvme.Success {
		q.t.Fatalf("command %#x: %v", c.Opcode, status)
	}
	return result
}

// Connect connects the queues of a new controller. The connections are closed with the test.
func (h *Host) Connect() (admin, io *Queue) {
	h.Helper()
	admin, controller := h.Dial(0, nvme.AnyController)
	admin.Must(nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.PropertySet, DW: [6]uint32{0, nvme.CC, 4<<20 | 6<<16 | 1}}, nil)
	for ready := uint64(0); ready&1 == 0; {
		ready = admin.Must(nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.PropertyGet, DW: [6]uint32{0, nvme.CSTS}}, nil)
	}
	io, _ = h.Dial(1, controller)
	return admin, io
}

// Connect connects an I/O queue of a new controller. The connections are closed with the test.
func Connect(t testing.TB, dev *verbs.Device, at netip.AddrPort, subsystem string) *Queue {
	t.Helper()
	h := Host{t, dev, at, subsystem, "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000002"}
	_, q := h.Connect()
	return q
}
