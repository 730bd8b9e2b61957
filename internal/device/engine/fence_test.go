package engine

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// heldFar is far whose copies wait: a request of the peer is not acknowledged before leave is closed.
type heldFar struct {
	far
	once          sync.Once
	inside, leave chan struct{}
}

func (f *heldFar) wait() {
	f.once.Do(func() { close(f.inside) })
	<-f.leave
}

func (f *heldFar) Space(addr, n uint64, _ rdma.Access) (keydoor.Space, uint64, error) {
	return f, addr, nil
}
func (f *heldFar) ReadV(v []keydoor.Vec) error  { f.wait(); return f.far.ReadV(v) }
func (f *heldFar) WriteV(v []keydoor.Vec) error { f.wait(); return f.far.WriteV(v) }

// signedKey makes a key over n bytes of new memory, zeros, with a signature.
func (e *end) signedKey(n int, s *mkey.Signature) *MKey {
	e.t.Helper()
	_, r := e.slice(n, rdma.LocalWrite)
	k := e.newKey(mkey.BlockSignature)
	access := rdma.LocalWrite
	e.post(&SendRequest{Op: ibv.WRConfigure, Configure: &Configuration{Key: k, Access: &access, HasList: true, List: []rdma.SGE{sge(r, 0, n)}, Signature: s}})
	e.want(e.t, "send 0: success")
	return k
}

// TestFence posts a request while the one before is in flight. It waits behind a READ, an atomic and a request that
// computes signatures if it has a fence, and behind data with a bad signature in any case.
func TestFence(t *testing.T) {
	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 7}
	const good, bad = 1, 2
	for _, test := range []struct {
		name   string
		op     ibv.WROp
		n      int // bytes on the wire
		signed int // good: the key generates fields; bad: it finds zeros where fields should be
		fence  ibv.SendFlags
		waits  bool
	}{
		{"READ, fence", ibv.WRRead, 512, 0, ibv.SendFence, true},
		{"READ", ibv.WRRead, 512, 0, 0, false},
		{"atomic, fence", ibv.WRFetchAdd, 8, 0, ibv.SendFence, true},
		{"WRITE, fence", ibv.WRWrite, 512, 0, ibv.SendFence, false},
		{"signed WRITE, fence", ibv.WRWrite, 520, good, ibv.SendFence, true},
		{"signed WRITE", ibv.WRWrite, 520, good, 0, false},
		{"bad WRITE", ibv.WRWrite, 512, bad, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, y := pair(t, QPAttr{SignaturePipelining: true})
			held := &heldFar{far: far{b: make([]byte, 1024)}, inside: make(chan struct{}), leave: make(chan struct{})}
			r := y.region(held, 1024, allRights)
			y.postRecv(&RecvRequest{ID: 9})
			_, mr := x.slice(512, rdma.LocalWrite)
			list := []rdma.SGE{sge(mr, 0, min(test.n, 512))}
			switch test.signed {
			case good:
				list = []rdma.SGE{{Length: 520, LKey: x.signedKey(512, &mkey.Signature{Wire: &dif}).Number()}}
			case bad:
				list = []rdma.SGE{{Length: 512, LKey: x.signedKey(520, &mkey.Signature{Memory: &dif}).Number()}}
			}
			x.post(&SendRequest{ID: 1, Op: test.op, RKey: r.Number(), RemoteAddr: 0x1000, SGEs: list})
			<-held.inside
			x.post(&SendRequest{ID: 2, Op: ibv.WRSend, Flags: test.fence, HasInline: true})
			waiting := func() bool {
				x.qp.Lock()
				defer x.qp.Unlock()
				return len(x.send) == 1
			}
			waits := waiting()
			// A goroutine that is at work for the QP takes the request when it comes to it.
			for end := time.Now().Add(patience); waits && !test.waits && time.Now().Before(end); waits = waiting() {
				time.Sleep(time.Millisecond)
			}
			close(held.leave)
			if waits != test.waits {
				t.Fatalf("request 2 waits for request 1, which is in flight: %t, want %t", waits, test.waits)
			}
			if test.signed == bad {
				x.want(t, "bad signature, receiving false, ", "send 1: success", "event send queue drained")
				x.qp.SawDrained()
				x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateRTS}, ibv.AttrState))
			} else {
				x.want(t, "send 1: success")
			}
			x.want(t, "send 2: success")
			y.want(t, "recv 9: success")
		})
	}
}

// TestBadSignatureStopsAtFence posts, in one call, a request whose data has a bad signature and a SEND with a fence. The QP
// stops between them: the SEND is not executed before the program has seen the event.
func TestBadSignatureStopsAtFence(t *testing.T) {
	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 7} // zeros have the wrong application tag
	for _, op := range []ibv.WROp{ibv.WRSend, ibv.WRWrite, ibv.WRRead} {
		t.Run(op.String(), func(t *testing.T) {
			x, y := pair(t, QPAttr{SignaturePipelining: true})
			_, remote := y.slice(520, allRights)
			if op == ibv.WRSend {
				y.postRecv(&RecvRequest{ID: 8, SGEs: []rdma.SGE{sge(remote, 0, 512)}})
			}
			y.postRecv(&RecvRequest{ID: 9})
			k, n := (*MKey)(nil), 512
			if op == ibv.WRRead { // the fields come from the peer
				k, n = x.signedKey(512, &mkey.Signature{Wire: &dif}), 520
			} else { // the fields are in the memory of x
				k = x.signedKey(520, &mkey.Signature{Memory: &dif})
			}
			x.post(
				&SendRequest{ID: 1, Op: op, RKey: remote.Number(), RemoteAddr: remote.Attr().Addr, SGEs: []rdma.SGE{{Length: uint32(n), LKey: k.Number()}}},
				&SendRequest{ID: 2, Op: ibv.WRSend, Flags: ibv.SendFence, HasInline: true},
			)
			x.want(t, "bad signature, receiving false, ", "send 1: success", "event send queue drained")
			x.qp.Lock()
			left := len(x.send)
			x.qp.Unlock()
			if st := x.qp.State(); left != 1 || st != rdma.StateSQD {
				t.Fatalf("after the event %d requests have not begun, in state %v; want the one with the fence, in %v", left, st, rdma.StateSQD)
			}
			x.qp.SawDrained()
			x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateRTS}, ibv.AttrState))
			x.want(t, "send 2: success")
			if op == ibv.WRSend {
				y.want(t, "recv 8: success")
			}
			y.want(t, "recv 9: success")
		})
	}
}

// TestFenceAfterBadSignature puts a QP that a bad signature has stopped back to RTS before the program has seen the event. A
// request without a fence is sent, one with a fence stops the QP again, until the program has seen the event.
func TestFenceAfterBadSignature(t *testing.T) {
	x, y := pair(t, QPAttr{SignaturePipelining: true})
	k := x.signedKey(520, &mkey.Signature{Memory: &sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 7}})
	_, dst := y.slice(512, allRights)
	y.postRecv(&RecvRequest{ID: 8}, &RecvRequest{ID: 9})
	x.post(&SendRequest{ID: 1, Op: ibv.WRWrite, RKey: dst.Number(), RemoteAddr: dst.Attr().Addr, SGEs: []rdma.SGE{{Length: 512, LKey: k.Number()}}})
	x.want(t, "bad signature, receiving false, ", "send 1: success", "event send queue drained")
	x.post(&SendRequest{ID: 2, Op: ibv.WRSend, HasInline: true}, &SendRequest{ID: 3, Op: ibv.WRSend, Flags: ibv.SendFence, HasInline: true})
	rts := func() { x.check(x.qp.Modify(ibv.QPModify{State: rdma.StateRTS}, ibv.AttrState)) }
	rts()
	x.want(t, "send 2: success")
	y.want(t, "recv 8: success")
	for end := time.Now().Add(patience); x.qp.State() != rdma.StateSQD; runtime.Gosched() {
		if len(x.log)+len(y.log) > 0 {
			t.Fatal("request 3 was executed: it has a fence, and the program has not seen the event of request 1")
		}
		if time.Now().After(end) {
			t.Fatalf("the QP is in %v, want it stopped in %v by the fence of request 3", x.qp.State(), rdma.StateSQD)
		}
	}
	x.qp.SawDrained()
	rts()
	x.want(t, "send 3: success")
	y.want(t, "recv 9: success")
}
