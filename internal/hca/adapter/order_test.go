package adapter_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestOrderOfDoorbells configures a key on one QP and names it in a request on another one, which
// is rung next: it finds the key configured, whichever of the QPs is older, and however many there
// are. The same holds for a window.
func TestOrderOfDoorbells(t *testing.T) {
	bothWays(t, func(t *testing.T, o options) {
		for _, more := range []int{0, 100} {
			for _, what := range []string{"key", "window"} {
				t.Run(fmt.Sprintf("%s, %d more QPs", what, more), func(t *testing.T) {
					p := start(t, inproc.NewNetwork(nil), testAddr, o)
					qps := make([]*qp, 2+more)
					for i := range qps {
						qps[i] = p.rc()
					}
					for i := 0; i < len(qps); i += 2 {
						qps[i].join(qps[i+1])
					}
					for p.ctx.Poll() {
					}
					mr, at := p.mr(8192, 0x1f)
					for round := range 8 {
						a, b := qps[round%2], qps[1-round%2]
						last := qps[len(qps)-1-round%2]
						rkey := p.announce(b, what, mr, at)
						if more > 0 {
							last.post(newWQE(prm.OpNop, 0, 0, 0)) // the register of b is overwritten
						}
						a.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, rkey).inline([]byte("first")))
						a.done()
						b.done()
					}
				})
			}
		}
	})
}

// TestOrderOfConfigurations configures a key on each of two QPs. A WRITE, which stands behind the second configuration in
// the same doorbell, names both keys: it finds both configured, whichever of the QPs is older. In half of the rounds the
// first QP has a WRITE behind its configuration, too.
func TestOrderOfConfigurations(t *testing.T) {
	bothWays(t, func(t *testing.T, o options) {
		p := start(t, inproc.NewNetwork(nil), testAddr, o)
		var qps [2]*qp
		for i := range qps {
			qps[i] = p.rc()
		}
		qps[0].join(qps[1])
		mr, at := p.mr(8192, 0x1f)
		for p.ctx.Poll() {
		}
		for round := range 8 {
			a, b := qps[round%2], qps[1-round%2]
			rkey := p.announce(b, "key", mr, at)
			want := 1
			if round >= 4 {
				b.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, rkey).inline([]byte("first")))
				want = 2
			}
			k := p.newKey(keyKind{entries: 4, signature: true})
			ws := k.configure().access(rwAccess).list(prm.Data{Addr: at + 4096, Length: 1024, LKey: mr.LKey()}).signature(prm.SignatureBSF{CheckMask: 0xf0, Wire: crc32Zeros}).wqes()
			a.post(append(ws, newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, rkey).data(0, 1032, k.number))...)
			for range 2 { // the configuration, and the WRITE
				a.done()
			}
			for range want {
				b.done()
			}
		}
	})
}

// bothWays runs a test with queues shared and copied, on a device whose packets pass a network and in memory.
func bothWays(t *testing.T, test func(t *testing.T, o options)) {
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("inside=%t", inside), func(t *testing.T) {
			both(t, func(t *testing.T, o options) {
				o.inside = inside
				test(t, o)
			})
		})
	}
}

// TestOrderOfInvalidation frees a key, or a window, on one QP, and names it in a request on another one, which
// is rung next: the request is refused, whichever of the QPs is older.
func TestOrderOfInvalidation(t *testing.T) {
	bothWays(t, func(t *testing.T, o options) {
		for _, what := range []string{"key", "window"} {
			for older := range 2 {
				t.Run(fmt.Sprintf("%s, QP %d", what, older), func(t *testing.T) {
					var rung []uint32 // QPs in the order in which they were served
					o.tracer = tracerFunc(func(r *adapter.Record) {
						if r.Kind == adapter.TraceDoorbell {
							rung = append(rung, r.Number)
						}
					})
					p := start(t, inproc.NewNetwork(nil), testAddr, o)
					var qps [2]*qp
					for i := range qps {
						qps[i] = p.rc()
					}
					a, b := qps[older], qps[1-older]
					a.join(b)
					mr, at := p.mr(8192, 0x1f)
					rkey := p.announce(b, what, mr, at)
					b.done()
					rung = nil
					if what == "key" {
						u := umr{mask: prm.MaskFree | prm.MaskMKey}
						u.ctx[0] = 0x40
						u.k = &key{number: rkey}
						b.post(u.wqes()...)
					} else {
						b.post(bind(2, rkey, 1, b.Number(), 0, 0, 0, 0))
					}
					a.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, rkey).inline([]byte("late")))
					a.fails("completion", prm.SyndromeRemoteAccess)
					if len(rung) < 2 || rung[0] != b.Number() {
						t.Errorf("served QPs %#x, want %#x first", rung, b.Number())
					}
				})
			}
		}
	})
}

// announce posts the configuration of a new key, or the binding of a new window, on q. It returns
// the number under which the peer of q reaches the region.
func (p *program) announce(q *qp, what string, mr *adapter.MR, at uint64) (rkey uint32) {
	p.t.Helper()
	if what == "key" {
		k := p.newKey(keyKind{entries: 4})
		u := k.configure().access(rwAccess).list(prm.Data{Addr: at, Length: 4096, LKey: mr.LKey()})
		u.mask |= prm.MaskStart
		binary.BigEndian.PutUint64(u.ctx[16:], at)
		q.post(u.wqes()...)
		return k.number
	}
	mw, err := p.ctx.AllocMW(p.pd, 2)
	if err != nil {
		p.t.Fatal(err)
	}
	q.post(bind(2, mw.RKey(), 1, q.Number(), at, 4096, mr.LKey(), prm.ContextRW))
	return mw.RKey()&^0xff | 1
}

// TestOrderWithinScan rings two QPs while the records are read: the first one's record was read
// already, the second one's was not.
func TestOrderWithinScan(t *testing.T) {
	p := start(t, inproc.NewNetwork(nil), testAddr, options{})
	b := p.rc()
	p.mem.alloc(8192) // the record of a is in another page
	a := p.rc()
	a.join(b)
	mr, at := p.mr(8192, 0x1f)
	p.newKey(keyKind{entries: 4})
	for p.ctx.Poll() {
	}
	p.mem.between = func() {
		p.mem.between = nil
		rkey := p.announce(b, "key", mr, at)
		a.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, rkey).inline([]byte("first")))
	}
	p.ctx.Scan()
	a.done()
}
