package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// remotes are the requests that need a right of the peer's QP.
var remotes = []struct {
	op   ibv.WROp
	need rdma.Access
}{
	{ibv.WRWrite, rdma.RemoteWrite}, {ibv.WRWriteImm, rdma.RemoteWrite}, {ibv.WRRead, rdma.RemoteRead},
	{ibv.WRFetchAdd, rdma.RemoteAtomic}, {ibv.WRCmpSwap, rdma.RemoteAtomic}, {ibv.WRMaskedFetchAdd, rdma.RemoteAtomic},
}

// TestRightsOfQP checks that an operation which the peer's QP does not grant is an invalid
// request, before its key is looked at and before it takes a receive request, and that a
// key which does not grant it is an access error.
func TestRightsOfQP(t *testing.T) {
	for _, c := range remotes {
		for _, key := range []string{"good", "unknown", "without the right", "empty"} {
			for _, granted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, key %s, granted %v", c.op, key, granted), func(t *testing.T) {
					x, y := pair(t, QPAttr{})
					_, from := x.slice(8, rdma.LocalWrite)
					rights := rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite | rdma.RemoteAtomic
					if !granted {
						y.check(y.qp.Modify(ibv.QPModify{AccessFlags: rights &^ c.need}, ibv.AttrAccessFlags))
					}
					if key == "without the right" {
						rights &^= c.need
					}
					_, to := y.slice(8, rights)
					y.postRecv(&RecvRequest{ID: 2})
					r := &SendRequest{ID: 1, Op: c.op, RKey: to.Number(), RemoteAddr: to.Attr().Addr, SGEs: []rdma.SGE{sge(from, 0, 8)}}
					switch key {
					case "unknown":
						r.RKey ^= 1 << 8
					case "empty":
						if c.op.Atomic() {
							t.Skip("an atomic is never empty")
						}
						r.SGEs = nil
					}
					x.post(r)
					switch {
					case !granted:
						x.want(t, "send 1: remote invalid request error")
						y.want(t, "recv 2: work request flushed error", "event QP request error")
					case key == "good" || key == "empty":
						x.want(t, "send 1: success")
					case c.op == ibv.WRWriteImm:
						x.want(t, "send 1: remote access error")
						y.want(t, "recv 2: local access error", "event QP access error")
					default:
						x.want(t, "send 1: remote access error")
						y.want(t, "recv 2: work request flushed error", "event QP access error")
					}
				})
			}
		}
	}
}

// TestRightsOfUC checks that an unreliable connection drops what it does not grant.
func TestRightsOfUC(t *testing.T) {
	x, y := pair(t, QPAttr{Type: rdma.UC})
	y.check(y.qp.Modify(ibv.QPModify{AccessFlags: rdma.LocalWrite}, ibv.AttrAccessFlags))
	mem, to := y.slice(8, rdma.LocalWrite|rdma.RemoteWrite)
	y.postRecv(&RecvRequest{ID: 3})
	x.post(&SendRequest{ID: 1, Op: ibv.WRWriteImm, RKey: to.Number(), RemoteAddr: to.Attr().Addr, HasInline: true, Inline: []byte("written!")},
		&SendRequest{ID: 2, Op: ibv.WRSend})
	x.want(t, "send 1: success", "send 2: success")
	y.want(t, "recv 3: success, 0 bytes, flags 0")
	if mem[0] != 0 {
		t.Errorf("memory %q was written", mem)
	}
}

// TestAnswerNeedsMemory checks that a READ or atomic with inline data is refused.
func TestAnswerNeedsMemory(t *testing.T) {
	for _, c := range remotes {
		if c.need == rdma.RemoteWrite {
			continue
		}
		x, y := pair(t, QPAttr{})
		_, to := y.slice(8, rdma.LocalWrite|rdma.RemoteRead|rdma.RemoteAtomic)
		x.post(&SendRequest{ID: 1, Op: c.op, RKey: to.Number(), RemoteAddr: to.Attr().Addr, HasInline: true, Inline: make([]byte, 8)})
		x.want(t, "send 1: local QP operation error")
	}
}

// TestWindowOfAnotherQP checks that a window of type 2 can be used and freed only through the
// QP that bound it, and a window of type 1 through every QP of its protection domain.
func TestWindowOfAnotherQP(t *testing.T) {
	for _, typ := range []WindowType{WindowType1, WindowType2} {
		for _, op := range []ibv.WROp{ibv.WRWrite, ibv.WRRead, ibv.WRFetchAdd, ibv.WRSendInv, ibv.WRLocalInv} {
			t.Run(fmt.Sprintf("type %d, %v", typ, op), func(t *testing.T) {
				x, y := pair(t, QPAttr{})
				fx, fy := &testFront{log: make(chan string, 100)}, &testFront{log: make(chan string, 100)}
				fx.qp, fy.qp = x.newQP(fx, QPAttr{}), y.newQP(fy, QPAttr{})
				connect(x, fx.qp, y, fy.qp)
				connect(y, fy.qp, x, fx.qp)
				_, from := x.slice(8, rdma.LocalWrite)
				_, r := y.slice(64, rdma.LocalWrite|ibv.MWBind)
				w, err := y.pd.NewWindow(typ)
				y.check(err)
				y.post(&SendRequest{ID: 1, Op: ibv.WRBindMW, Bind: &Binding{
					Window: w, Number: w.Number() + 1, LKey: r.Number(), Addr: r.Attr().Addr, Length: 16, Access: rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic,
				}})
				y.want(t, "send 1: success")
				request := func(id uint64) *SendRequest {
					if op == ibv.WRLocalInv || op == ibv.WRSendInv {
						return &SendRequest{ID: id, Op: op, InvKey: w.Number()}
					}
					return &SendRequest{ID: id, Op: op, RKey: w.Number(), RemoteAddr: r.Attr().Addr, SGEs: []rdma.SGE{sge(from, 0, 8)}}
				}
				fy.postRecv(&RecvRequest{ID: 5})
				y.postRecv(&RecvRequest{ID: 5})
				// Through the other QP.
				if op == ibv.WRLocalInv {
					fy.post(request(2))
					fy.want(t, "send 2: memory management operation error")
				} else {
					fx.post(request(2))
					switch {
					case op == ibv.WRSendInv: // the peer gets no NAK, and tries again
						fy.want(t, "recv 5: local access error, 0 bytes, flags 0 (SEND with invalidate of key")
					case typ == WindowType1:
						fx.want(t, "send 2: success")
					default:
						fx.want(t, "send 2: remote access error")
					}
				}
				if typ == WindowType1 {
					return
				}
				// Through its own QP it is still bound.
				if op == ibv.WRLocalInv {
					y.post(request(3))
					y.want(t, "send 3: success")
				} else {
					x.post(request(3))
					x.want(t, "send 3: success")
				}
			})
		}
	}
}

// TestLongDatagram checks that datagrams longer than the receive request are dropped, and that
// the next datagram uses the request.
func TestLongDatagram(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			x, y := pair(t, QPAttr{Type: rdma.UD})
			if shared {
				y.qp.Close()
				y.want(t, "reset")
				y.qp = y.newQP(sharedFront{y.testFront}, QPAttr{Type: rdma.UD, SharedRecv: true})
				connect(y, y.qp, x, x.qp)
			}
			into, dst := y.slice(200, rdma.LocalWrite)
			y.postRecv(&RecvRequest{ID: 7, SGEs: []rdma.SGE{sge(dst, 0, 100)}}, &RecvRequest{ID: 8, SGEs: []rdma.SGE{sge(dst, 100, 100)}})
			ah, err := x.dev.NewAH(rdma.AH{DGID: rdma.GIDOf(y.dev.Addr())})
			x.check(err)
			send := func(id uint64, n int) {
				x.post(&SendRequest{ID: id, Op: ibv.WRSend, HasInline: true, Inline: []byte(strings.Repeat("d", n)), AH: ah, RemoteQPN: y.qp.Num(), QKey: testQKey})
				x.want(t, fmt.Sprintf("send %d: success", id))
			}
			send(1, 61)
			send(2, 1000)
			send(3, 60)
			y.want(t, "recv 7: success, 100 bytes")
			send(4, 10)
			y.want(t, "recv 8: success, 50 bytes")
			if got := string(into[40:100]); got != strings.Repeat("d", 60) {
				t.Errorf("received %q", got)
			}
			if y.qp.State() != rdma.StateRTS {
				t.Errorf("state %v", y.qp.State())
			}
			if c := y.dev.Port().Counters(); c.TooLong != 2 {
				t.Errorf("%d datagrams too long", c.TooLong)
			}
		})
	}
}

// sharedFront is the front of a QP whose receive requests are those of a shared queue.
type sharedFront struct{ *testFront }

func (f sharedFront) GiveBack(r *RecvRequest) { f.recv = append([]*RecvRequest{r}, f.recv...) }
