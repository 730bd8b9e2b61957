package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/softmkey/softmkey/internal/bench"
	"github.com/softmkey/softmkey/internal/udp"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// end is a device with as many queue pairs as are measured, and memory for a message.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qps []*verbs.QP
	mr  *verbs.MR
}

// flow is two devices of this process, whose queue pairs are connected one to one.
type flow struct {
	here, there end
	size        int
}

// newFlow opens two devices on connections and connects n queue pairs.
func newFlow(a, b udp.Conn, n, size int) (*flow, error) {
	f := &flow{size: size}
	err := errors.Join(f.here.open(a, n, size), f.there.open(b, n, size))
	for i := 0; i < n && err == nil; i++ {
		x, y := f.here.qps[i], f.there.qps[i]
		ex, ey := x.Endpoint(), y.Endpoint()
		err = errors.Join(x.Connect(ey, nil), y.Connect(ex, nil))
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (e *end) open(conn udp.Conn, n, size int) (err error) {
	addr := conn.LocalAddr()
	if e.dev, err = verbs.Open(addr.Addr(), &verbs.Options{Conn: conn}); err != nil {
		conn.Close()
		return err
	}
	if e.pd, err = e.dev.NewPD(); err != nil {
		return err
	}
	if e.cq, err = e.dev.NewCQ(4096); err != nil {
		return err
	}
	if e.mr, err = e.pd.Register(make([]byte, size), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead); err != nil {
		return err
	}
	for range n {
		qp, err := e.pd.NewQP(verbs.QPAttr{SendCQ: e.cq})
		if err != nil {
			return err
		}
		e.qps = append(e.qps, qp)
	}
	return nil
}

// close closes everything, as far as there is any.
func (f *flow) close() {
	if f == nil {
		return
	}
	for _, e := range []*end{&f.here, &f.there} {
		for _, qp := range e.qps {
			qp.Close()
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

// check moves one message over the last queue pair and compares it.
func (f *flow) check() error {
	rand.NewChaCha8([32]byte{2}).Read(f.here.mr.Bytes())
	clear(f.there.mr.Bytes())
	qp := f.here.qps[len(f.here.qps)-1]
	c := qp.Start()
	c.Signaled().Write(f.there.mr.RKey(), f.there.mr.Addr()).SGE(f.here.mr.SGE(0, f.size))
	if err := c.Complete(); err != nil {
		return err
	}
	wcs := make([]verbs.WC, 1)
	if err := f.wait(wcs, new(int)); err != nil {
		return err
	}
	if !bytes.Equal(f.here.mr.Bytes(), f.there.mr.Bytes()) {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}

// patience ends what waits for a completion that never comes.
const patience = 10 * time.Second

// wait waits for completions and counts them.
func (f *flow) wait(wcs []verbs.WC, count *int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := f.here.cq.Wait(ctx, wcs)
	for _, wc := range wcs[:max(n, 0)] {
		if wc.Status != roce.Success {
			return fmt.Errorf("a request ended with %v", wc.Status)
		}
	}
	*count += n
	return err
}

// write sends RDMA WRITEs for a time, over all queue pairs in turn, with depth of them
// on their way, and returns the rate in GB/s.
func (f *flow) write(d time.Duration, depth int) (float64, error) {
	wcs := make([]verbs.WC, depth)
	sge := f.here.mr.SGE(0, f.size)
	posted, done, next := 0, 0, 0
	start := time.Now()
	for end := start.Add(d); done < posted || time.Now().Before(end); {
		for posted-done < depth && time.Now().Before(end) {
			c := f.here.qps[next].Start()
			c.Signaled().Write(f.there.mr.RKey(), f.there.mr.Addr()).SGE(sge)
			if err := c.Complete(); err != nil {
				return 0, err
			}
			posted++
			if next++; next == len(f.here.qps) {
				next = 0
			}
		}
		if err := f.wait(wcs, &done); err != nil {
			return 0, err
		}
	}
	return float64(done) * float64(f.size) / float64(time.Since(start).Nanoseconds()), nil
}

// writing returns the case of writing with 4 MiB on their way over a flow, for which
// there is a pointer as it does not exist before the row's turn.
func writing(name string, f **flow) bench.Case {
	return bench.Case{Name: name, Sample: func(d time.Duration) (float64, error) {
		return (*f).write(d, max(4, 4<<20/(*f).size))
	}}
}
