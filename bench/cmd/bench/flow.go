package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// loopbackAny is the address at which sockets listen.
var loopbackAny = netip.MustParseAddrPort("127.0.0.1:0")

// patience is the longest time to wait for a result.
const patience = 10 * time.Second

// end is a device with the queue pairs to measure, and memory for one message.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qps []*verbs.QP
	mr  *verbs.MR
	key *verbs.MKey // nil: messages use mr

	sge  rdma.SGE // the message, in mr or in key
	rkey uint32   // by which the peer reaches it, at addr
	addr uint64
}

// flow moves messages between two devices of this process, whose queue pairs are
// connected in pairs.
type flow struct {
	here, there end
	op          rdma.Opcode
	size        int
	sent        int // messages that run has sent

	stop    func()      // ends the goroutine that receives; nil: there is none
	answers atomic.Bool // it answers each message
}

// newFlow opens two devices on connections, which it then owns, and connects n pairs of
// queue pairs with the given attributes.
func newFlow(a, b packetconn.Conn, n, size int, attr verbs.QPAttr) *flow {
	f := &flow{op: rdma.OpRDMAWrite, size: size}
	err := errors.Join(attempt(func() { f.here.open(a, n, size, attr) }), attempt(func() { f.there.open(b, n, size, attr) }))
	for i := 0; i < n && err == nil; i++ {
		x, y := f.here.qps[i], f.there.qps[i]
		ex, ey := x.Endpoint(), y.Endpoint()
		err = errors.Join(x.Connect(ey, nil), y.Connect(ex, nil))
	}
	if err != nil {
		f.close()
	}
	check(err)
	return f
}

func (e *end) open(conn packetconn.Conn, n, size int, attr verbs.QPAttr) {
	e.dev = openOn(conn)
	e.pd, e.cq = must(e.dev.NewPD()), must(e.dev.NewCQ(4096))
	e.mr = must(e.pd.Register(make([]byte, size), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead))
	e.sge, e.rkey, e.addr = e.mr.SGE(0, size), e.mr.RKey(), e.mr.Addr()
	attr.SendCQ = e.cq
	for range n {
		e.qps = append(e.qps, must(e.pd.NewQP(attr)))
	}
}

// openOn opens a device on a connection, which it then owns.
func openOn(conn packetconn.Conn) *verbs.Device {
	dev, err := verbs.Open(conn.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: conn})
	if err != nil {
		conn.Close()
	}
	return must(dev, err)
}

// close closes everything that is open.
func (f *flow) close() {
	if f == nil {
		return
	}
	if f.stop != nil {
		f.stop()
	}
	for _, e := range []*end{&f.here, &f.there} {
		for _, qp := range e.qps {
			qp.Close()
		}
		if e.key != nil {
			e.key.Close()
		}
		if e.mr != nil {
			e.mr.Close()
		}
		if e.cq != nil {
			e.cq.Close()
		}
		if e.pd != nil {
			e.pd.Close()
		}
		if e.dev != nil {
			e.dev.Close()
		}
	}
}

// depth returns the number of outstanding messages: 4 MiB of them, but at least 4 and at
// most 256.
func depth(size int) int { return min(256, max(4, 4<<20/size)) }

// post posts n messages on a queue pair.
func (f *flow) post(qp *verbs.QP, n int) {
	c := qp.Start()
	for range n {
		c.Signaled()
		switch f.op {
		case rdma.OpSend:
			c.Send()
		case rdma.OpRDMARead:
			c.Read(f.there.rkey, f.there.addr)
		default:
			c.Write(f.there.rkey, f.there.addr)
		}
		c.SGE(f.here.sge)
	}
	check(c.Complete())
}

// wait waits for completions of the end's messages and counts them.
func (e *end) wait(wcs []rdma.WC, count *int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := must(e.cq.Wait(ctx, wcs))
	for _, wc := range wcs[:n] {
		if wc.Status != rdma.StatusSuccess {
			check(fmt.Errorf("%v ended with %v", wc.Opcode, wc.Status))
		}
	}
	*count += n
}

// check sends one message over the last queue pair and compares it.
func (f *flow) check() {
	from, to := f.here.mr.Bytes(), f.there.mr.Bytes()
	if f.op == rdma.OpRDMARead {
		from, to = to, from
	}
	rand.NewChaCha8([32]byte{2}).Read(from)
	clear(to)
	f.post(f.here.qps[len(f.here.qps)-1], 1)
	f.here.wait(make([]rdma.WC, 1), new(int))
	if !bytes.Equal(from, to) {
		check(errors.New("the data that arrived is not the data that was sent"))
	}
	for _, e := range []*end{&f.here, &f.there} {
		if e.key == nil {
			continue
		}
		if bad, err := e.key.Check(); err != nil || bad != nil {
			check(fmt.Errorf("signatures: %v, %v", bad, err))
		}
	}
}

// run sends messages for the time d, round-robin over all queue pairs, with depth messages in
// flight. It returns the rate in messages a second.
func (f *flow) run(d time.Duration, depth int) float64 {
	wcs := make([]rdma.WC, depth)
	batch := 1 // a program with one queue pair posts its requests in chains
	if len(f.here.qps) == 1 {
		batch = depth / 4
	}
	posted, done := 0, 0
	start := time.Now()
	for end := start.Add(d); ; {
		more := time.Now().Before(end)
		if !more && done == posted {
			f.sent += done
			return float64(done) / time.Since(start).Seconds()
		}
		for ; more && posted-done+batch <= depth; posted += batch {
			f.post(f.here.qps[posted/batch%len(f.here.qps)], batch)
		}
		f.here.wait(wcs, &done)
	}
}

// rate returns the case of messages over a flow. It takes a pointer to the flow, because
// the flow is created when the row is measured.
func rate(name string, u bench.Unit, f **flow) bench.Case {
	return sampled(name, func(d time.Duration) float64 {
		perSecond := (*f).run(d, depth((*f).size))
		if u == bench.Mops {
			return perSecond / 1e6
		}
		return perSecond * float64((*f).size) / 1e9
	})
}
