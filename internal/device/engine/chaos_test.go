package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// chaosFront is a front that reports only the statuses of send requests.
type chaosFront struct {
	testFront
	done chan rdma.Status
}

func (f *chaosFront) SendDone(r *SendRequest, c *Completion) bool {
	f.done <- c.Status
	return true
}
func (f *chaosFront) RecvDone(*RecvRequest, *Completion) bool { return true }
func (f *chaosFront) BadSignature(*BadSignature)              {}
func (f *chaosFront) Event(rdma.EventType, error)             {}
func (f *chaosFront) Reset()                                  { f.send, f.recv = nil, nil }

// chaos is one end, whose objects are created and closed at random.
type chaos struct {
	*end
	mem lockedFar

	mu     sync.Mutex // guards the following fields
	region *Region
	key    *MKey
	window *Window
}

const chaosSize = 64 << 10

func newChaos(e *end) *chaos {
	c := &chaos{end: e}
	c.mem.b = make([]byte, chaosSize)
	c.replaceRegion()
	c.replaceKey()
	var err error
	c.window, err = e.pd.NewWindow(WindowType2)
	e.check(err)
	return c
}

// lockedFar is far with a lock, because several QPs use the same memory.
type lockedFar struct {
	far
	mu sync.Mutex
}

func (f *lockedFar) Space(addr, n uint64, _ rdma.Access) (keydoor.Space, uint64, error) {
	return f, addr, nil
}

func (f *lockedFar) ReadV(v []keydoor.Vec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.far.ReadV(v)
}

func (f *lockedFar) WriteV(v []keydoor.Vec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.far.WriteV(v)
}

// attr returns the attributes of a region of the memory, in place or copied.
func (c *chaos) attr(copied bool) RegionAttr {
	a := RegionAttr{
		Memory: mkey.Bytes(c.mem.b), Addr: 0x1000, Length: chaosSize,
		Access: rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic | ibv.MWBind,
	}
	if copied || raceEnabled {
		a.Memory, a.Start = &c.mem, farBase
	}
	return a
}

func (c *chaos) replaceRegion() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.region != nil && c.region.Close() != nil {
		return // a window is bound to the region
	}
	var err error
	c.region, err = c.pd.NewRegion(c.attr(false))
	c.check(err)
}

func (c *chaos) replaceKey() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key != nil {
		c.check(c.key.Close())
	}
	c.key = c.newKey(mkey.RemoteInvalidate)
}

func (c *chaos) objects() (*Region, *MKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.region, c.key
}

// request returns a random request, which may be invalid when it executes.
func (c *chaos) request(r *rand.Rand, peer *chaos) *SendRequest {
	own, key := c.objects()
	far, farKey := peer.objects()
	n := r.IntN(chaosSize/2) + 8
	local := rdma.SGE{Addr: own.Attr().Addr, Length: uint32(n), LKey: own.Number()}
	if r.IntN(2) == 0 {
		local = rdma.SGE{Length: uint32(n), LKey: key.Number()}
	}
	rkey, addr := far.Number(), far.Attr().Addr
	switch r.IntN(4) {
	case 0:
		rkey, addr = farKey.Number(), 0
	case 1:
		rkey = peer.window.Number()
	}
	access := rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	req := &SendRequest{RKey: rkey, RemoteAddr: addr, SGEs: []rdma.SGE{local}}
	switch r.IntN(10) {
	case 0, 1:
		req.Op = ibv.WRWrite
	case 2, 3:
		req.Op = ibv.WRRead
	case 4:
		req.Op = ibv.WRSend
	case 5:
		req.Op = ibv.WRFetchAdd
		req.SGEs[0].Length = 8
	case 6:
		req.Op, req.InvKey = ibv.WRSendInv, farKey.Number()
	case 7:
		req.Op, req.InvKey = ibv.WRLocalInv, key.Number()
		if r.IntN(2) == 0 {
			req.InvKey = c.window.Number()
		}
	case 8:
		req.Op = ibv.WRBindMW
		req.Bind = &Binding{Window: c.window, Number: c.window.Number(), LKey: own.Number(), Addr: own.Attr().Addr, Length: chaosSize, Access: access &^ rdma.LocalWrite}
	default:
		req.Op = ibv.WRConfigure
		req.Configure = &Configuration{Key: key, Access: &access, HasList: true, List: []rdma.SGE{{Addr: own.Attr().Addr, Length: chaosSize, LKey: own.Number()}}}
	}
	return req
}

// TestChaos executes random requests on several connections between two devices, while
// regions and keys are closed, re-registered, freed and configured. Nothing may hang, and
// the race detector must find nothing in the engine.
func TestChaos(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	n := inproc.NewNetwork(nil)
	x, y := newChaos(newEnd(t, n.Listen, "192.0.2.1", QPAttr{})), newChaos(newEnd(t, n.Listen, "192.0.2.2", QPAttr{}))
	var good atomic.Int64
	var over atomic.Bool
	var workers, others sync.WaitGroup
	for seed := range uint64(4) {
		fronts := [2]*chaosFront{}
		for i, c := range []*chaos{x, y} {
			f := &chaosFront{done: make(chan rdma.Status, 100)}
			f.qp = c.newQP(f, QPAttr{})
			fronts[i] = f
		}
		psn := uint32(0)
		connectBoth := func() {
			// Packets of an earlier connection may still be under way: a new one begins with other PSNs, or
			// takes them for its own.
			psn = (psn + 1<<16) & 0xffffff
			short := func(m *ibv.QPModify) {
				m.Timeout = 14 // queue pairs fail here, and their peers' retries end
				m.SQPSN, m.RQPSN = psn, psn
			}
			connectAs(x.end, fronts[0].qp, y.end, fronts[1].qp, short)
			connectAs(y.end, fronts[1].qp, x.end, fronts[0].qp, short)
		}
		connectBoth()
		workers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range rounds {
				me, peer := x, y
				f, g := fronts[0], fronts[1]
				if r.IntN(2) == 0 {
					me, peer, f, g = y, x, g, f
				}
				region, _ := peer.objects()
				g.postRecv(&RecvRequest{SGEs: []rdma.SGE{{Addr: region.Attr().Addr, Length: chaosSize, LKey: region.Number()}}})
				f.post(me.request(r, peer))
				if st := <-f.done; st == rdma.StatusSuccess {
					good.Add(1)
					continue
				}
				for _, q := range []*QP{f.qp, g.qp} {
					if err := q.Modify(ibv.QPModify{State: rdma.StateReset}, ibv.AttrState); err != nil {
						t.Error(err)
					}
				}
				connectBoth()
			}
		})
	}
	for _, c := range []*chaos{x, y} {
		others.Go(func() {
			r := rand.New(rand.NewPCG(9, 9))
			for !over.Load() {
				switch r.IntN(4) {
				case 0:
					c.replaceRegion()
				case 1:
					c.replaceKey()
				default:
					region, _ := c.objects()
					a := c.attr(r.IntN(2) == 0)
					region.Change(RegionChange{Memory: &a}) // may return EBUSY or EINVAL
				}
			}
		})
	}
	workers.Wait()
	over.Store(true)
	others.Wait()
	if good.Load() == 0 {
		t.Error("not one request succeeded")
	}
	t.Logf("%d of %d requests succeeded", good.Load(), 4*rounds)
}
