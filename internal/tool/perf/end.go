package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/verbs"
)

// remote is the line that a side sends for each of its queue pairs.
type remote struct {
	Endpoint verbs.Endpoint `json:"endpoint"`
	RKey     uint32         `json:"rkey"`
	Addr     uint64         `json:"addr"`
}

// end is one side of a case.
type end struct {
	c       Case
	plan    *keyplan.Plan
	content content
	dek     *dek.DEK
	spin    time.Duration
	polling func() // ends polling of the device; nil if the device is not polled

	requests *summary.Table // counts the client's requests; nil: they are not counted

	out, in bool // whether messages leave this side's memory, and whether they arrive there

	dev   *verbs.Device
	pd    *verbs.PD
	cq    *verbs.CQ
	links []*link
	byQP  map[uint32]*link
	wcs   [64]verbs.WC
}

// link is a connection of a case.
type link struct {
	qp       *verbs.QP
	src, dst area // memory of messages to send and of messages that arrive, if the side needs it
	peer     remote
	payload  []byte // the message to send inline; nil: messages are sent from src
	under    int    // messages in flight

	posted []time.Time // when each batch in flight was posted, if requests are counted

	recv    [1]verbs.RecvWR // the receive request, which is always the same
	recvSGE [1]verbs.SGE
}

// newEnd makes a side's part of a case. The client sends and the server receives
// unless the operation or a ping-pong says otherwise.
func newEnd(dev *verbs.Device, c Case, client bool, spin time.Duration) (e *end, err error) {
	e = &end{c: c, dev: dev, spin: spin, byQP: make(map[uint32]*link)}
	if e.plan, err = c.plan(); err != nil {
		return nil, err
	}
	pingPong := c.Test == Latency && (c.Op == Write || c.Op == Send)
	e.out = pingPong || client == (c.Op != Read)
	e.in = pingPong || client == (c.Op == Read)
	if e.dek, err = dek.New(dek.Attr{Size: dek.Size256, Key: testKey()}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.content, err = newContent(e.plan, c.Size, e.dek); err != nil {
		return e, err
	}
	if e.pd, err = dev.NewPD(); err != nil {
		return e, err
	}
	if e.cq, err = dev.NewCQ(c.QPs*(c.Depth+e.receives()) + 64); err != nil {
		return e, err
	}
	for range c.QPs {
		l, err := e.newLink()
		if l != nil {
			e.links = append(e.links, l)
		}
		if err != nil {
			return e, err
		}
		e.byQP[l.qp.Num()] = l
	}
	return e, nil
}

// receives returns the number of receive requests on each queue pair. For SENDs it is larger
// than the number of messages in flight, because the program posts new receive requests later
// than the device takes messages.
func (e *end) receives() int {
	switch {
	case e.c.Test == Latency:
		return 4
	case e.c.Op == Send:
		return max(4*e.c.Depth, min(1024, maxReceives/e.c.QPs))
	}
	return 1
}

// maxReceives bounds the receive requests of all queue pairs together, as long as each queue
// pair has four for each message in flight.
const maxReceives = 1 << 16

// configRoom is the number of bytes of inline data that a key's configuration needs.
const configRoom = 160

func (e *end) newLink() (l *link, err error) {
	l = new(link)
	attr := verbs.QPAttr{
		SendCQ: e.cq, MaxSendWR: max(2*e.c.Depth, 16), MaxRecvWR: e.receives(), MaxInlineData: max(e.c.Inline, configRoom),
	}
	if l.qp, err = e.pd.NewQP(attr); err != nil {
		return nil, err
	}
	if e.out {
		memory := e.content.memory
		if l.src, err = newArea(e.pd, &e.plan.Sender, len(memory), len(e.content.wire), verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
			return l, err
		}
		copy(l.src.mr.Bytes(), memory)
		if l.src.key == nil && len(memory) <= e.c.Inline && e.c.Op != Read && e.c.Op != FetchAdd {
			l.payload = memory
		}
	}
	if e.in {
		l.dst, err = newArea(e.pd, &e.plan.Receiver, len(e.content.peer), len(e.content.wire), verbs.RemoteWrite|verbs.RemoteAtomic)
		if e.c.Op == Send {
			l.recvSGE[0] = l.dst.sge
			l.recv[0].SGEs = l.recvSGE[:]
		}
	}
	return l, err
}

// remotes returns the lines with this side's queue pairs and memory for the peer.
func (e *end) remotes() []remote {
	list := make([]remote, len(e.links))
	for i, l := range e.links {
		list[i].Endpoint = l.qp.Endpoint()
		a := &l.dst
		if !e.in {
			a = &l.src
		}
		list[i].RKey, list[i].Addr = a.remote()
	}
	return list
}

// connect joins all queue pairs to the peer's and makes the keys and the receive
// requests ready.
func (e *end) connect(ctx context.Context, peers []remote, r *request) error {
	o := verbs.ConnectOptions{MTU: r.MTU}
	r.Retry.Apply(&o)
	for i, l := range e.links {
		l.peer = peers[i]
		to := peers[i].Endpoint
		if r.MTU != 0 {
			to = to.Standard() // the other side, which has the same request, does so, too
		}
		if err := l.qp.Connect(to, &o); err != nil {
			return err
		}
		if e.out {
			if err := l.src.configure(ctx, l.qp, e.cq, &e.plan.Sender, verbs.RemoteRead, e.dek); err != nil {
				return err
			}
		}
		if e.in {
			if err := l.dst.configure(ctx, l.qp, e.cq, &e.plan.Receiver, verbs.RemoteWrite, e.dek); err != nil {
				return err
			}
			for range e.receives() {
				if err := l.receive(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// receive posts a receive request.
func (l *link) receive() error {
	_, err := l.qp.PostRecv(l.recv[:]...)
	return err
}

// post posts n messages, the last of which completes with their number.
func (l *link) post(e *end, n int) error {
	c := l.qp.Start()
	for i := range n {
		if i == n-1 {
			c.ID(uint64(n)).Signaled()
		}
		switch e.c.Op {
		case Write:
			c.Write(l.peer.RKey, l.peer.Addr)
		case Send:
			c.Send()
		case Read:
			c.Read(l.peer.RKey, l.peer.Addr).SGE(l.dst.sge)
			continue
		case FetchAdd:
			c.FetchAdd(l.peer.RKey, l.peer.Addr, 1).SGE(l.src.sge)
			continue
		}
		if l.payload != nil {
			c.Inline(l.payload)
		} else {
			c.SGE(l.src.sge)
		}
	}
	l.under += n
	if e.requests != nil && e.c.Test == Bandwidth {
		l.posted = append(l.posted, time.Now())
	}
	return c.Complete()
}

// count adds the oldest batch in flight, which has n messages and one completion, to the
// requests that are counted.
func (l *link) count(e *end, n uint64) {
	if e.requests == nil {
		return
	}
	e.requests.Add(e.opcode(), summary.Succeeded, n, n*uint64(e.c.Size), time.Since(l.posted[0]))
	l.posted = append(l.posted[:0], l.posted[1:]...)
}

// opcode returns the name of the case's operation in the completions of the side that posts it.
func (e *end) opcode() string { return opcodes[e.c.Op].String() }

var opcodes = map[string]verbs.Opcode{Write: verbs.OpRDMAWrite, Send: verbs.OpSend, Read: verbs.OpRDMARead, FetchAdd: verbs.OpFetchAdd}

// ball posts the message of a ping-pong, which makes a completion at the peer.
func (l *link) ball(e *end) error {
	c := l.qp.Start()
	if e.c.Op == Write {
		c.WriteImm(l.peer.RKey, l.peer.Addr, 0)
	} else {
		c.Send()
	}
	if l.payload != nil {
		c.Inline(l.payload)
	} else {
		c.SGE(l.src.sge)
	}
	return c.Complete()
}

// wait returns at least one completion. It polls for the time e.spin before it sleeps.
func (e *end) wait(ctx context.Context) ([]verbs.WC, error) {
	if e.spin > 0 {
		if n := e.poll(ctx); n > 0 {
			return e.wcs[:n], e.failed(e.wcs[:n])
		}
	}
	n, err := e.cq.Wait(ctx, e.wcs[:])
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return e.wcs[:n], e.failed(e.wcs[:n])
}

// poll drives the device until there is a completion or the time e.spin has passed
// without progress.
func (e *end) poll(ctx context.Context) (n int) {
	if e.polling == nil {
		e.polling = e.dev.Polling()
	}
	var start time.Time
	for try := 1; ; try++ {
		if n := e.cq.Poll(e.wcs[:]); n > 0 {
			return n
		}
		if e.dev.Poll() {
			start = time.Time{} // the time without progress begins again
		}
		// The clock is read in every 16th round, because reading it takes as long as polling.
		if try%16 != 0 {
			continue
		}
		runtime.Gosched()
		if start.IsZero() {
			start = time.Now()
		}
		if ctx.Err() != nil || time.Since(start) >= e.spin {
			e.rest()
			return 0
		}
	}
}

// rest ends the polling of the device, which then waits for packets by itself again.
func (e *end) rest() {
	if e.polling != nil {
		e.polling()
		e.polling = nil
	}
}

func (e *end) failed(wcs []verbs.WC) error {
	for i := range wcs {
		if wc := &wcs[i]; wc.Status != verbs.StatusSuccess {
			return fmt.Errorf("%v: %v", wc.Opcode, wc.Status)
		}
	}
	return nil
}

// check asks the keys for bad blocks, and compares the data that arrived.
func (e *end) check(messages bool) error {
	for _, l := range e.links {
		if err := errors.Join(l.src.check(), l.dst.check()); err != nil {
			return err
		}
		if messages && e.c.Verify && e.in && e.c.Op != FetchAdd && !bytes.Equal(l.dst.mr.Bytes(), e.content.peer) {
			return errors.New("the data that arrived is not the data that was sent")
		}
	}
	return nil
}

// close destroys everything.
func (e *end) close() error {
	var errs []error
	for _, l := range e.links {
		errs = append(errs, l.qp.Close())
	}
	for _, l := range e.links {
		errs = append(errs, l.src.close(), l.dst.close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	if e.dek != nil {
		errs = append(errs, e.dek.Close())
	}
	return errors.Join(errs...)
}
