package engine

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// testFront is a front that keeps its requests in slices and sends reports as text on a
// channel.
type testFront struct {
	qp     *QP
	send   []*SendRequest
	recv   []*RecvRequest
	shared map[uint32]*[]*RecvRequest // XRC
	log    chan string
	block  func()               // called by PeekSend
	ended  func(r *RecvRequest) // called by RecvDone; may be nil
}

func (f *testFront) PeekSend() *SendRequest {
	if f.block != nil {
		f.block()
	}
	if len(f.send) == 0 {
		return nil
	}
	return f.send[0]
}
func (f *testFront) TakeSend() { f.send = f.send[1:] }

func (f *testFront) SendDone(r *SendRequest, c *Completion) bool {
	f.log <- fmt.Sprintf("send %d: %v%s", r.ID, c.Status, reason(c.Err))
	return true
}

func (f *testFront) NextRecv() *RecvRequest { return pop(&f.recv) }

func (f *testFront) NextRecvFrom(srq uint32) *RecvRequest {
	if q := f.shared[srq]; q != nil {
		return pop(q)
	}
	return nil
}

func pop(q *[]*RecvRequest) *RecvRequest {
	if len(*q) == 0 {
		return nil
	}
	r := (*q)[0]
	*q = (*q)[1:]
	return r
}

func (f *testFront) RecvDone(r *RecvRequest, c *Completion) bool {
	if f.ended != nil {
		f.ended(r)
	}
	f.log <- fmt.Sprintf("recv %d: %v, %d bytes, flags %v%s", r.ID, c.Status, c.ByteLen, c.Flags, reason(c.Err))
	return true
}

func (f *testFront) BadSignature(b *BadSignature) {
	f.log <- fmt.Sprintf("bad signature, receiving %t, %v", b.Recv, b.Record.Sig.Kind)
}
func (f *testFront) Event(t rdma.EventType, err error) { f.log <- fmt.Sprintf("event %v", t) }
func (f *testFront) Reset() {
	f.send, f.recv = nil, nil
	f.log <- "reset"
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// post queues requests and notifies the engine.
func (f *testFront) post(reqs ...*SendRequest) {
	f.qp.Lock()
	f.send = append(f.send, reqs...)
	f.qp.Unlock()
	f.qp.Post()
}

func (f *testFront) postRecv(reqs ...*RecvRequest) {
	f.qp.Lock()
	f.recv = append(f.recv, reqs...)
	f.qp.Unlock()
	f.qp.PostRecv()
}

// patience is how long a test waits for an event.
const patience = 20 * time.Second

// want waits for the next reports and compares their first characters.
func (f *testFront) want(t *testing.T, begins ...string) {
	t.Helper()
	for i, b := range begins {
		select {
		case got := <-f.log:
			if !strings.HasPrefix(got, b) {
				t.Fatalf("report %d of %d is %q, want %q", i+1, len(begins), got, b)
			}
		case <-time.After(patience):
			t.Fatalf("report %d of %d has not come, want %q", i+1, len(begins), b)
		}
	}
}

// end is a device with one QP.
type end struct {
	*testFront
	t   *testing.T
	dev *Device
	pd  *PD
}

// newEnd returns a device at an address of a network.
func newEnd[C packetconn.Conn](t *testing.T, listen func(netip.AddrPort) (C, error), addr string, a QPAttr) *end {
	t.Helper()
	conn, err := listen(netip.AddrPortFrom(netip.MustParseAddr(addr), 4791))
	fatal.If(t, err)
	return newEndOn(t, conn, a)
}

func newEndOn(t *testing.T, conn packetconn.Conn, a QPAttr) *end {
	t.Helper()
	e := &end{testFront: &testFront{log: make(chan string, 100)}, t: t}
	var err error
	e.dev, err = Open(conn.LocalAddr().Addr(), &Options{Conn: conn})
	e.check(err)
	e.pd, err = e.dev.NewPD()
	e.check(err)
	e.qp = e.newQP(e.testFront, a)
	return e
}

// newKey makes a key with room for a few entries.
func (e *end) newKey(f mkey.Flags) *MKey {
	e.t.Helper()
	k, err := e.pd.NewMKey(keydoor.Attr{Flags: uint32(f), MaxEntries: 4})
	e.check(err)
	return k
}

func (e *end) newQP(f Front, a QPAttr) *QP {
	e.t.Helper()
	a.Front = f
	qp, err := e.pd.NewQP(a)
	e.check(err)
	e.t.Cleanup(func() { qp.Close() })
	return qp
}

// close ends the goroutines of the device, for a test in virtual time.
func (e *end) close() {
	e.qp.Close()
	e.dev.port.Close()
}

func (e *end) check(err error) {
	e.t.Helper()
	fatal.If(e.t, err)
}

func (e *end) slice(n int, access rdma.Access) ([]byte, *Region) {
	e.t.Helper()
	b := make([]byte, n)
	r, err := e.pd.NewRegion(RegionAttr{Memory: mkey.Bytes(b), Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Length: uint64(n), Access: access})
	e.check(err)
	return b, r
}

func sge(r *Region, off, n int) rdma.SGE {
	return rdma.SGE{Addr: r.Attr().Addr + uint64(off), Length: uint32(n), LKey: r.Number()}
}

const testQKey = 0x11111111

// patient is the code of a local ACK timeout of a second: eight of them are longer than a busy machine keeps a
// goroutine waiting.
const patient = 18

// connect moves a's QP to RTS, connected to b's.
func connect(a *end, qp *QP, b *end, peer *QP) { connectAs(a, qp, b, peer, func(*ibv.QPModify) {}) }

// connectAs is connect with other attributes, which change sets.
func connectAs(a *end, qp *QP, b *end, peer *QP, change func(*ibv.QPModify)) {
	a.t.Helper()
	m := ibv.QPModify{
		State: rdma.StateInit, Port: 1, AccessFlags: rdma.RemoteRead | rdma.RemoteWrite | rdma.RemoteAtomic, QKey: testQKey,
		AV: rdma.AH{DGID: rdma.GIDOf(b.dev.Addr())}, PathMTU: ibv.MTU1024, DestQPN: peer.Num(),
		MaxDestRdAtomic: 4, MinRNRTimer: 1, Timeout: patient, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4,
	}
	change(&m)
	for _, to := range []rdma.State{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
		m.State = to
		var row transition
		for _, r := range qp.table() {
			if r.to == to && r.from == to-1 {
				row = r
			}
		}
		a.check(qp.Modify(m, ibv.AttrState|row.required))
	}
}

func pair(t *testing.T, a QPAttr) (x, y *end) {
	t.Helper()
	n := inproc.NewNetwork(nil)
	x, y = newEnd(t, n.Listen, "192.0.2.1", a), newEnd(t, n.Listen, "192.0.2.2", a)
	connect(x, x.qp, y, y.qp)
	connect(y, y.qp, x, x.qp)
	return x, y
}

// TestCloseDoesNotVisitIdleQPs checks that closing a region waits only for QPs that have
// used memory.
func TestCloseDoesNotVisitIdleQPs(t *testing.T) {
	x, _ := pair(t, QPAttr{})
	_, r := x.slice(64, 0)
	inside, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	x.block = func() {
		once.Do(func() { close(inside) })
		<-leave
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.qp.Post() // stays in the QP, with its locks held
	}()
	<-inside
	x.check(r.Close()) // hangs if Close visits the QP
	close(leave)
	<-done
}

// TestReset checks that requests of a QP that is reset, started or not, get no
// completion.
func TestReset(t *testing.T) {
	x, y := pair(t, QPAttr{})
	_, r := x.slice(64, 0)
	// Without a receive request, the first SEND is started and never acknowledged.
	x.post(&SendRequest{ID: 1, Op: ibv.WRSend, SGEs: []rdma.SGE{sge(r, 0, 8)}}, &SendRequest{ID: 2, Op: ibv.WRSend, Flags: ibv.SendFence})
	x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateReset}, ibv.AttrState))
	x.want(t, "reset")
	if st := x.qp.State(); st != rdma.StateReset {
		t.Errorf("state %v", st)
	}
	connect(x, x.qp, y, y.qp)
	if len(x.log) > 0 {
		t.Errorf("report %q", <-x.log)
	}
}

// TestBadSignatureOrder checks that the report of a bad signature comes before the
// completion of the transfer that found it, and that the completion comes before the
// event.
func TestBadSignatureOrder(t *testing.T) {
	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 7}
	x, y := pair(t, QPAttr{SignaturePipelining: true})
	_, disk := x.slice(520, rdma.LocalWrite)
	to, dst := y.slice(520, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	for _, e := range []*end{x, y} {
		k := e.newKey(mkey.BlockSignature)
		mr, access := disk, rdma.LocalWrite|rdma.RemoteRead
		if e == y {
			mr = dst
		}
		e.post(&SendRequest{ID: 1, Op: ibv.WRConfigure, Configure: &Configuration{
			Key: k, Access: &access, HasList: true, List: []rdma.SGE{sge(mr, 0, 520)}, Signature: &mkey.Signature{Memory: &dif},
		}})
		e.want(t, "send 1: success")
		if e == x {
			x.post(&SendRequest{ID: 2, Op: ibv.WRWrite, RKey: dst.Number(), RemoteAddr: dst.Attr().Addr, SGEs: []rdma.SGE{{Length: 512, LKey: k.Number()}}})
			x.want(t, "bad signature, receiving false, ", "send 2: success", "event send queue drained")
			x.qp.SawDrained()
			x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateRTS}, ibv.AttrState))
			continue
		}
		// The peer READs a bad block.
		clear(to)
		_, mr = x.slice(512, rdma.LocalWrite)
		x.post(&SendRequest{ID: 3, Op: ibv.WRRead, RKey: k.Number(), SGEs: []rdma.SGE{sge(mr, 0, 512)}})
		y.want(t, "bad signature, receiving true, ")
		x.want(t, "send 3: success")
	}
}

// TestLastWQE checks that a QP with a shared receive queue reports once, when it enters
// ERR in any way, that it takes no more requests, and that it flushes none of them.
func TestLastWQE(t *testing.T) {
	x, y := pair(t, QPAttr{SharedRecv: true})
	y.postRecv(&RecvRequest{ID: 5})
	x.post(&SendRequest{ID: 1, Op: ibv.WRWrite, RKey: 1, SGEs: []rdma.SGE{{LKey: 0}}, HasInline: true, Inline: []byte("x")})
	x.want(t, "send 1: remote access error", "event last WQE reached")
	y.want(t, "event last WQE reached", "event QP access error")
	y.check(y.qp.Modify(ibv.QPModify{State: rdma.StateErr}, ibv.AttrState))
	y.check(y.qp.Modify(ibv.QPModify{State: rdma.StateReset}, ibv.AttrState))
	y.want(t, "reset")
}

// TestRefuseKeepsOrder checks that a request which the front cannot decode fails in the order of
// the queue.
func TestRefuseKeepsOrder(t *testing.T) {
	x, _ := pair(t, QPAttr{})
	bad := &SendRequest{ID: 2}
	bad.Refuse(rdma.StatusLocQPOpErr, errors.New("opcode 0x3f is not known"))
	x.post(&SendRequest{ID: 1, Op: ibv.WRNop}, bad, &SendRequest{ID: 3, Op: ibv.WRSetPSV})
	x.want(t, "send 1: success", "send 2: local QP operation error (opcode 0x3f is not known)", "send 3: work request flushed error (flush: request 2 on QP")
}

// TestInvalidRequests checks that invalid requests, which a front may decode from a program's
// memory, fail with a reason.
func TestInvalidRequests(t *testing.T) {
	x, y := pair(t, QPAttr{})
	_, mr := x.slice(8, rdma.LocalWrite)
	other, err := x.dev.NewPD()
	x.check(err)
	key, err := other.NewMKey(keydoor.Attr{MaxEntries: 4})
	x.check(err)
	window, err := other.NewWindow(WindowType2)
	x.check(err)
	huge := []rdma.SGE{{Length: 1 << 31}, {Length: 1}}
	for i, r := range []*SendRequest{
		{Op: 200}, {Op: 10}, {Op: ibv.WRConfigure}, {Op: ibv.WRConfigure, Configure: &Configuration{}},
		{Op: ibv.WRConfigure, Configure: &Configuration{Key: key}}, {Op: ibv.WRBindMW}, {Op: ibv.WRBindMW, Bind: &Binding{}},
		{Op: ibv.WRBindMW, Bind: &Binding{Window: window, Number: window.Number()}},
		{Op: ibv.WRLocalInv, InvKey: mr.Number()}, {Op: ibv.WRLocalInv, InvKey: key.Number()}, {Op: ibv.WRSend, SGEs: huge},
		{Op: ibv.WRCmpSwap, SGEs: []rdma.SGE{sge(mr, 0, 4)}}, {Op: ibv.WRFetchAdd},
		{Op: ibv.WRSend, SGEs: []rdma.SGE{{Length: 8, LKey: mr.Number(), Addr: ^uint64(0)}}},
		{Op: ibv.WRRead, SGEs: []rdma.SGE{{Length: 8, LKey: mr.Number() + 1, Addr: mr.Attr().Addr}}},
		{Op: ibv.WRSend, SGEs: []rdma.SGE{{Length: 8, LKey: window.Number()}}},
	} {
		r.ID = uint64(i)
		x.post(r)
		got := <-x.log
		if !strings.HasPrefix(got, fmt.Sprintf("send %d: ", i)) || strings.Contains(got, "success") || !strings.HasSuffix(got, ")") {
			t.Fatalf("%+v ended with %q", r, got)
		}
		x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateReset}, ibv.AttrState))
		x.want(t, "reset")
		connect(x, x.qp, y, y.qp)
	}
}

// TestReregister re-registers a region.
func TestReregister(t *testing.T) {
	x, y := pair(t, QPAttr{})
	src, from := x.slice(8, 0)
	copy(src, "new data")
	old, r := y.slice(8, rdma.LocalWrite)
	write := func(id uint64) {
		x.post(&SendRequest{ID: id, Op: ibv.WRWrite, RKey: r.Number(), RemoteAddr: 0x1000, SGEs: []rdma.SGE{sge(from, 0, 8)}})
	}
	next := make([]byte, 8)
	access := rdma.LocalWrite | rdma.RemoteWrite
	y.check(r.Change(RegionChange{Memory: &RegionAttr{Memory: mkey.Bytes(next), Addr: 0x1000, Length: 8}}))
	y.check(r.Change(RegionChange{Access: &access}))
	write(1)
	x.want(t, "send 1: success")
	if string(next) != "new data" || !bytes.Equal(old, make([]byte, 8)) {
		t.Errorf("the new memory holds %q, the old %q", next, old)
	}
	pd2, err := y.dev.NewPD()
	y.check(err)
	y.check(r.Change(RegionChange{PD: pd2}))
	write(2)
	x.want(t, "send 2: remote access error")
	if err := r.Change(RegionChange{Memory: &RegionAttr{Memory: mkey.Bytes(next), Length: 9}}); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("more than the memory has: %v", err)
	}
	if err := pd2.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing the region's new PD: %v", err)
	}
	y.check(r.Close())
	y.check(pd2.Close())
}

// TestWindows binds, uses and revokes memory windows of both types.
func TestWindows(t *testing.T) {
	for _, typ := range []WindowType{WindowType1, WindowType2} {
		x, y := pair(t, QPAttr{})
		mem, r := y.slice(64, rdma.LocalWrite|ibv.MWBind)
		src, from := x.slice(8, rdma.LocalWrite)
		copy(src, "windowed")
		w, err := y.pd.NewWindow(typ)
		y.check(err)
		bind := func(id uint64, number uint32, n uint64) {
			y.post(&SendRequest{ID: id, Op: ibv.WRBindMW, Bind: &Binding{
				Window: w, Number: number, LKey: r.Number(), Addr: r.Attr().Addr + 16, Length: n, Access: rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic,
			}})
		}
		number := w.Number() + 1
		bind(1, number, 16)
		y.want(t, "send 1: success")
		if w.Number() != number {
			t.Fatalf("number %#x, want %#x", w.Number(), number)
		}
		if err := r.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("closing a region with a window: %v", err)
		}
		// Addresses in a window are those of its region.
		x.post(&SendRequest{ID: 2, Op: ibv.WRWrite, RKey: number, RemoteAddr: r.Attr().Addr + 20, SGEs: []rdma.SGE{sge(from, 0, 8)}},
			&SendRequest{ID: 3, Op: ibv.WRFetchAdd, RKey: number, RemoteAddr: r.Attr().Addr + 16, CompareAdd: 1, SGEs: []rdma.SGE{sge(from, 0, 8)}})
		x.want(t, "send 2: success", "send 3: success")
		if string(mem[20:28]) != "windowed" || mem[16] != 1 {
			t.Fatalf("memory %q", mem)
		}
		if typ == WindowType2 {
			bind(4, number+1, 16)
			y.want(t, "send 4: memory management operation error (bind a memory window: window") // the window is bound
			continue
		}
		bind(4, number+1, 8) // replaces the previous binding
		y.want(t, "send 4: success")
		x.post(&SendRequest{ID: 5, Op: ibv.WRWrite, RKey: number, RemoteAddr: r.Attr().Addr + 16, SGEs: []rdma.SGE{sge(from, 0, 8)}})
		x.want(t, "send 5: remote access error")
		y.want(t, "event QP access error")
		y.check(w.Close())
		y.check(r.Close())
	}
}

// TestWindowInvalidated frees windows of type 2 with both kinds of request, and accesses
// memory outside of one.
func TestWindowInvalidated(t *testing.T) {
	for _, how := range []string{"LOCAL_INV", "SEND with invalidate", "behind the end", "zero-based"} {
		x, y := pair(t, QPAttr{})
		_, r := y.slice(64, rdma.LocalWrite|ibv.MWBind)
		_, from := x.slice(32, rdma.LocalWrite)
		w, err := y.pd.NewWindow(WindowType2)
		y.check(err)
		access := rdma.RemoteWrite | rdma.LocalWrite
		if how == "zero-based" {
			access |= rdma.ZeroBased
		}
		y.post(&SendRequest{ID: 1, Op: ibv.WRBindMW, Bind: &Binding{Window: w, Number: w.Number(), LKey: r.Number(), Addr: r.Attr().Addr, Length: 16, Access: access}})
		y.want(t, "send 1: success")
		n, base := 8, r.Attr().Addr
		switch how {
		case "LOCAL_INV":
			y.post(&SendRequest{ID: 2, Op: ibv.WRLocalInv, InvKey: w.Number()})
			y.want(t, "send 2: success")
		case "SEND with invalidate":
			y.postRecv(&RecvRequest{ID: 3})
			x.post(&SendRequest{ID: 3, Op: ibv.WRSendInv, InvKey: w.Number()})
			y.want(t, "recv 3: success, 0 bytes, flags WITH_INV")
			x.want(t, "send 3: success")
		case "zero-based":
			x.post(&SendRequest{ID: 3, Op: ibv.WRWrite, RKey: w.Number(), RemoteAddr: 8, SGEs: []rdma.SGE{sge(from, 0, 8)}})
			x.want(t, "send 3: success")
		default:
			n = 17
		}
		x.post(&SendRequest{ID: 4, Op: ibv.WRWrite, RKey: w.Number(), RemoteAddr: base, SGEs: []rdma.SGE{sge(from, 0, n)}})
		x.want(t, "send 4: remote access error")
		y.check(w.Close())
		y.check(r.Close())
	}
}

// TestQPTypes sends a message over each type of QP.
func TestQPTypes(t *testing.T) {
	for _, c := range []struct{ send, recv rdma.QPType }{{rdma.RC, rdma.RC}, {rdma.UC, rdma.UC}, {rdma.UD, rdma.UD}, {ibv.XRCSend, ibv.XRCRecv}} {
		t.Run(c.send.String(), func(t *testing.T) {
			n := inproc.NewNetwork(nil)
			x, y := newEnd(t, n.Listen, "192.0.2.1", QPAttr{Type: c.send}), newEnd(t, n.Listen, "192.0.2.2", QPAttr{Type: c.recv, SharedRecv: c.recv == ibv.XRCRecv})
			connect(x, x.qp, y, y.qp)
			connect(y, y.qp, x, x.qp)
			b, mr := x.slice(100, 0)
			copy(b, "a message")
			into, dst := y.slice(140, rdma.LocalWrite)
			recv := &RecvRequest{ID: 9, SGEs: []rdma.SGE{sge(dst, 0, 140)}}
			want, off := "recv 9: success, 100 bytes, flags WITH_IMM", 0
			r := &SendRequest{ID: 1, Op: ibv.WRSendImm, SGEs: []rdma.SGE{sge(mr, 0, 100)}}
			switch c.send {
			case rdma.UD:
				ah, err := x.dev.NewAH(rdma.AH{DGID: rdma.GIDOf(y.dev.Addr())})
				x.check(err)
				r.AH, r.RemoteQPN, r.QKey = ah, y.qp.Num(), testQKey
				want, off = "recv 9: success, 140 bytes, flags GRH|WITH_IMM", 40
			case ibv.XRCSend:
				r.RemoteSRQN = 5
			}
			if c.recv == ibv.XRCRecv {
				y.shared = map[uint32]*[]*RecvRequest{5: {recv}}
			} else {
				y.postRecv(recv)
			}
			x.post(r)
			x.want(t, "send 1: success")
			y.want(t, want)
			if !bytes.HasPrefix(into[off:], []byte("a message")) {
				t.Errorf("received %q", into)
			}
		})
	}
}
