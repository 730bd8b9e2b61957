package overrdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/verbs"
)

// maxWorkers bounds the commands of a connection that are executed at a time. Further ones wait in their
// receive buffers.
const maxWorkers = 32

// slotSize is the size of a receive buffer.
const slotSize = nvme.CommandSize + CapsuleData

// response is the ID of the work requests that send responses. Those of a worker have its number.
const response = ^uint64(0)

// connection is a queue of a host: a queue pair.
type connection struct {
	s     *Server
	host  *host
	queue *nvmet.Queue
	size  int // commands

	qp         *verbs.QP
	sent, rcvd *verbs.CQ
	slots      *verbs.MR

	jobs      chan job
	workers   []*worker
	responses chan struct{} // a token for each response that may be in the send queue

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
	c = &connection{s: s, host: h, size: size, jobs: make(chan job), responses: make(chan struct{}, size), ending: make(chan struct{})}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	requests := size + 2*workers // responses; a configuration and a transfer of each worker
	if c.sent, err = s.dev.NewCQ(requests); err != nil {
		return nil, err
	}
	if c.rcvd, err = s.dev.NewCQ(size); err != nil {
		return nil, err
	}
	if c.qp, err = s.pd.NewQP(verbs.QPAttr{SendCQ: c.sent, RecvCQ: c.rcvd, MaxSendWR: requests, MaxRecvWR: size, MaxInlineData: 128}); err != nil {
		return nil, err
	}
	if c.slots, err = s.pd.Register(make([]byte, size*slotSize), verbs.LocalWrite); err != nil {
		return nil, err
	}
	if err = cm.Init(c.qp, verbs.LocalWrite); err != nil {
		return nil, err
	}
	for i := range size {
		if err = c.receive(i); err != nil {
			return nil, err
		}
	}
	for i := range workers {
		w := &worker{c: c, number: uint64(i), done: make(chan error, 2)}
		c.workers = append(c.workers, w)
	}
	return c, nil
}

// close frees what the connection has. Nothing uses it any more.
func (c *connection) close() {
	if c.qp != nil {
		c.qp.Close()
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

// receive posts the receive request of a slot.
func (c *connection) receive(slot int) error {
	_, err := c.qp.PostRecv(verbs.RecvWR{ID: uint64(slot), SGEs: []verbs.SGE{c.slots.SGE(slot*slotSize, slotSize)}})
	return err
}

// serve executes commands until the connection ends. It returns the fault that has ended it, if any.
func (c *connection) serve(ctx context.Context, conn *cm.Conn) error {
	collecting, stop := context.WithCancel(context.Background())
	var receiver, workers, collector sync.WaitGroup
	receiver.Go(c.receiveCommands)
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
	leaving, cancel := context.WithTimeout(context.Background(), farewell)
	_ = conn.Disconnect(leaving) // the host may be gone; the QP is in the error state in any case
	cancel()
	// The QP has flushed its receive requests, which ends the receiver, and its send requests, which ends
	// the transfers that workers wait for.
	receiver.Wait()
	close(c.jobs)
	workers.Wait()
	stop()
	collector.Wait()
	c.queue.Close()
	return c.err
}

// receiveCommands gives commands to the workers until the queue pair fails.
func (c *connection) receiveCommands() {
	var wcs [16]verbs.WC
	for {
		n, err := c.rcvd.Wait(context.Background(), wcs[:])
		if err != nil {
			c.fail(err)
			return
		}
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.StatusSuccess {
				c.broke(wc)
				return
			}
			c.jobs <- job{int(wc.ID), int(wc.ByteLen)}
		}
	}
}

// broke ends the connection after a failed request. Flushed requests say only that it has ended.
func (c *connection) broke(wc verbs.WC) {
	if wc.Status == verbs.StatusWRFlushErr {
		c.fail(nil)
	} else {
		c.fail(wc.Err)
	}
}

// collect takes the completions of send requests.
func (c *connection) collect(ctx context.Context) {
	var wcs [16]verbs.WC
	for {
		n, err := c.sent.Wait(ctx, wcs[:])
		if err != nil {
			return
		}
		for _, wc := range wcs[:n] {
			var err error
			if wc.Status != verbs.StatusSuccess {
				c.broke(wc)
				err = wc.Err
			}
			if wc.ID == response {
				<-c.responses
				continue
			}
			select {
			case c.workers[wc.ID].done <- err:
			default: // a failed configuration has failed the transfer, too
			}
		}
	}
}

// respond sends a completion. If invalidate is not 0, it invalidates that key of the host.
func (c *connection) respond(done nvme.Completion, invalidate uint32) error {
	c.responses <- struct{}{}
	wr := c.qp.Start().ID(response).Signaled()
	if invalidate != 0 {
		wr.SendInv(invalidate)
	} else {
		wr.Send()
	}
	if err := wr.Inline(done.Append(nil)).Complete(); err != nil {
		<-c.responses
		return err
	}
	return nil
}

// worker executes commands of a connection, one at a time.
type worker struct {
	c      *connection
	number uint64
	done   chan error // the outcome of the transfer that it has posted
	key    *verbs.MKey

	// The command that is being executed.
	x       transfer
	pending bool // a transfer was posted whose outcome nobody has taken
}

func (w *worker) run() {
	for j := range w.c.jobs {
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
	w.x.init(w, &cmd.SGL, capsule[nvme.CommandSize:])
	invalidate := uint32(0)
	if cmd.SGL.Type == nvme.KeyedBlock && cmd.SGL.Subtype == nvme.Invalidate {
		invalidate = cmd.SGL.Key
	}
	// The buffer is posted before the response, after which the host may send its next command.
	var once sync.Once
	post := func() {
		once.Do(func() {
			if err := c.receive(j.slot); err != nil {
				c.fail(err)
			}
		})
	}
	err = c.queue.Execute(&cmd, &w.x, func(done nvme.Completion) {
		post()
		if err := c.respond(done, invalidate); err != nil {
			c.fail(err)
		}
	})
	post()
	return errors.Join(err, w.x.finish())
}
