package overrdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// maxWorkers bounds the commands of a connection that are executed at a time. Further ones wait in their
// receive buffers.
const maxWorkers = 32

// slotSize is the size of a receive buffer.
const slotSize = nvme.CommandSize + CapsuleData

// The IDs of send requests: a response has the number of its place, below the size of the queue. The
// transfers of a worker have the size and the worker's number. A transfer that its response follows has
// noID: only its failure completes.
const noID = ^uint64(0)

// connection is a queue of a host: a queue pair.
type connection struct {
	s     *Server
	host  *host
	queue *nvmet.Queue
	size  int // commands
	began time.Time
	conn  atomic.Pointer[cm.Conn] // nil until it is accepted

	qp         *verbs.QP
	sent, rcvd *verbs.CQ
	slots      *verbs.MR

	workers []*worker
	places  chan int    // free places of responses in the send queue
	lent    []*verbs.MR // of each place: the buffer that is lent to the send queue until the response has ended, or nil

	turn chan struct{} // its only token has the worker that takes the next command
	over bool          // of the worker that has the token: no command comes any more

	once   sync.Once
	ending chan struct{} // closed when the connection must end
	err    error         // the reason; set before ending is closed
}

// job is a command capsule in a receive buffer.
type job struct {
	slot int
	n    int
}

func (s *Server) newConnection(h *host, qid uint16, size int) (c *connection, err error) {
	workers := min(size, maxWorkers)
	if qid == 0 {
		workers = 4
	}
	c = &connection{s: s, host: h, size: size, began: time.Now(), places: make(chan int, size), lent: make([]*verbs.MR, size), turn: make(chan struct{}, 1), ending: make(chan struct{})}
	for i := range size {
		c.places <- i
	}
	c.turn <- struct{}{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	requests := 2*size + 2*workers // responses and the transfers before them; a configuration and a transfer of each worker
	if c.sent, err = s.dev.NewCQ(requests); err != nil {
		return nil, err
	}
	if c.rcvd, err = s.dev.NewCQ(size); err != nil {
		return nil, err
	}
	if c.qp, err = s.pd.NewQP(verbs.QPAttr{SendCQ: c.sent, RecvCQ: c.rcvd, MaxSendWR: requests, MaxRecvWR: size, MaxInlineData: 128}); err != nil {
		return nil, err
	}
	if c.slots, err = s.pd.Register(make([]byte, size*slotSize), rdma.LocalWrite); err != nil {
		return nil, err
	}
	if err = c.qp.Init(rdma.LocalWrite); err != nil {
		return nil, err
	}
	for i := range size {
		if err = c.receive(i); err != nil {
			return nil, err
		}
	}
	for i := range workers {
		w := &worker{c: c, id: uint64(size + i), done: make(chan error, 2)}
		c.workers = append(c.workers, w)
	}
	return c, nil
}

// close frees what the connection has. Nothing uses it any more.
func (c *connection) close() {
	if c.qp != nil {
		c.qp.Close()
	}
	for i := range c.lent { // of responses whose completions nobody has taken
		c.takeBack(i)
	}
	for _, w := range c.workers {
		if w.key != nil {
			w.key.Close()
		}
	}
	if c.slots != nil {
		c.slots.Close()
	}
	for _, cq := range []*verbs.CQ{c.sent, c.rcvd} {
		if cq != nil {
			cq.Close()
		}
	}
}

// fail ends the connection. The error is nil if the end is not a fault.
func (c *connection) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.ending)
	})
}

// errCrowded is the error of a connection that has ended so that another one finds room.
var errCrowded = errors.New("the target has too many connections, and this one was dispensable")

// ended reports whether the connection has ended, or will.
func (c *connection) ended() bool {
	conn := c.conn.Load()
	if conn == nil {
		return c.leaves()
	}
	select {
	case <-conn.Done():
		return true
	default:
		return c.leaves()
	}
}

// probe ends the connection if the host acknowledges nothing: a write of no bytes is repeated until the retries end.
func (c *connection) probe() {
	select {
	case place := <-c.places:
		if c.qp.Start().ID(uint64(place)).Signaled().Write(0, 0).Complete() != nil {
			c.places <- place
		}
	default: // responses are under way, which show the same
	}
}

// leaves reports whether the connection ends.
func (c *connection) leaves() bool {
	select {
	case <-c.ending:
		return true
	default:
		return false
	}
}

// receive posts the receive request of a slot.
func (c *connection) receive(slot int) error {
	_, err := c.qp.PostRecv(verbs.RecvWR{ID: uint64(slot), SGEs: []rdma.SGE{c.slots.SGE(slot*slotSize, slotSize)}})
	return err
}

// serve executes commands until the connection ends. It returns the fault that has ended it, if any.
func (c *connection) serve(ctx context.Context, conn *cm.Conn) error {
	c.conn.Store(conn)
	collecting, stop := context.WithCancel(context.Background())
	var workers, collector sync.WaitGroup
	collector.Go(func() { c.collect(collecting) })
	for _, w := range c.workers {
		workers.Go(w.run)
	}
	first := time.AfterFunc(patience, func() {
		if !c.queue.Connected() {
			c.fail(fmt.Errorf("no command within %v", patience))
		}
	})
	select {
	case <-ctx.Done():
	case <-conn.Done():
	case <-c.ending:
	}
	first.Stop()
	c.fail(nil)
	c.queue.Stop()
	patient := farewell
	if c.err == errCrowded {
		patient = 0 // the place is needed
	}
	leaving, cancel := context.WithTimeout(context.Background(), patient)
	_ = conn.Disconnect(leaving) // the host may be gone; the QP is in the error state in any case
	cancel()
	// The QP has flushed its receive requests, so that no worker waits for a command, and its send requests,
	// which ends the transfers that workers wait for.
	workers.Wait()
	stop()
	collector.Wait()
	c.queue.Close()
	return c.err
}

// next returns the next command. ok is false if the queue pair has failed. The workers take turns: the one
// that has waited for a command executes it, and no goroutine has to wake another one for that.
func (c *connection) next() (j job, ok bool) {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if c.over {
		return job{}, false
	}
	var wcs [1]rdma.WC
	_, err := c.rcvd.Wait(context.Background(), wcs[:])
	switch {
	case err != nil:
		c.fail(err)
	case wcs[0].Status != rdma.StatusSuccess:
		c.broke(wcs[0])
	default:
		return job{int(wcs[0].ID), int(wcs[0].ByteLen)}, true
	}
	c.over = true
	return job{}, false
}

// broke ends the connection after a failed request. Flushed requests say only that it has ended.
func (c *connection) broke(wc rdma.WC) {
	if wc.Status == rdma.StatusWRFlushErr {
		c.fail(nil)
	} else {
		c.fail(wc.Err)
	}
}

// collect takes the completions of send requests.
func (c *connection) collect(ctx context.Context) {
	var wcs [16]rdma.WC
	for {
		n, err := c.sent.Wait(ctx, wcs[:])
		if err != nil {
			return
		}
		for _, wc := range wcs[:n] {
			var err error
			if wc.Status != rdma.StatusSuccess {
				c.broke(wc)
				err = wc.Err
			}
			switch {
			case wc.ID == noID:
			case wc.ID < uint64(c.size):
				c.takeBack(int(wc.ID))
				c.places <- int(wc.ID)
			default:
				select {
				case c.workers[wc.ID-uint64(c.size)].done <- err:
				default: // a failed configuration has failed the transfer, too
				}
			}
		}
	}
}

// takeBack ends the loan of a buffer to the send queue, if the response in a place has one.
func (c *connection) takeBack(place int) {
	if mr := c.lent[place]; mr != nil {
		c.lent[place] = nil
		c.freeBuffer(mr)
	}
}

// freeBuffer gives a buffer of a command back.
func (c *connection) freeBuffer(mr *verbs.MR) {
	n := mr.Len()
	c.s.memory.put(mr)
	c.host.give(n)
}

// respond sends the completion of a command with transfer x. If invalidate is not 0, it invalidates that key
// of the host. Data for the host goes first, in the same list, and its buffer is lent to the send queue.
func (c *connection) respond(done nvme.Completion, invalidate uint32, x *transfer) error {
	place := <-c.places
	wr := c.qp.Start()
	if x.pushes {
		wr.ID(noID).Write(x.rkey, x.addr).SGE(x.push)
		c.lent[place], x.mr, x.pushes = x.mr, nil, false
	}
	wr.ID(uint64(place)).Signaled()
	if invalidate != 0 {
		wr.SendInv(invalidate)
	} else {
		wr.Send()
	}
	if err := wr.Inline(done.Append(nil)).Complete(); err != nil {
		c.takeBack(place)
		c.places <- place
		return err
	}
	return nil
}

// worker executes commands of a connection, one at a time.
type worker struct {
	c    *connection
	id   uint64     // of its transfers
	done chan error // the outcome of the transfer that it has posted
	key  *verbs.MKey
}

func (w *worker) run() {
	for {
		j, ok := w.c.next()
		if !ok {
			return
		}
		if err := w.execute(j); err != nil {
			w.c.fail(err)
		}
	}
}

// execute executes the command in a receive buffer, and posts the buffer again.
func (w *worker) execute(j job) error {
	c := w.c
	capsule := c.slots.Bytes()[j.slot*slotSize:][:j.n]
	cmd, err := nvme.ParseCommand(capsule)
	if err != nil {
		return err
	}
	x := newTransfer(w, &cmd.SGL, capsule[nvme.CommandSize:])
	defer x.finish()
	invalidate := uint32(0)
	if cmd.SGL.Type == nvme.KeyedBlock && cmd.SGL.Subtype == nvme.Invalidate {
		invalidate = cmd.SGL.Key
	}
	// The buffer is posted before the response, after which the host may send its next command.
	posted := false
	err = c.queue.Execute(&cmd, x, func(done nvme.Completion) {
		posted = true
		if err := cmp.Or(c.receive(j.slot), c.respond(done, invalidate, x)); err != nil {
			c.fail(err)
		}
	})
	if !posted {
		err = cmp.Or(err, c.receive(j.slot))
	}
	return err
}
