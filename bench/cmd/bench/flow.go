package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
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
}

// flow sends RDMA WRITEs between two devices of this process, whose queue pairs are
// connected in pairs.
type flow struct {
	here, there end
	size        int
	sent        int // messages that run has sent
}

// newFlow opens two devices on connections, which it then owns, and connects n pairs of
// queue pairs with room for inline bytes in a request.
func newFlow(a, b packetconn.Conn, n, size, inline int) (*flow, error) {
	f := &flow{size: size}
	err := errors.Join(f.here.open(a, n, size, inline), f.there.open(b, n, size, inline))
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

func (e *end) open(conn packetconn.Conn, n, size, inline int) (err error) {
	if e.dev, err = verbs.Open(conn.LocalAddr().Addr(), &verbs.Options{Conn: conn}); err != nil {
		conn.Close()
		return err
	}
	if e.pd, err = e.dev.NewPD(); err != nil {
		return err
	}
	if e.cq, err = e.dev.NewCQ(4096); err != nil {
		return err
	}
	if e.mr, err = e.pd.Register(make([]byte, size), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return err
	}
	for range n {
		qp, err := e.pd.NewQP(verbs.QPAttr{SendCQ: e.cq, MaxInlineData: inline})
		if err != nil {
			return err
		}
		e.qps = append(e.qps, qp)
	}
	return nil
}

// close closes everything that is open.
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

// depth returns the number of outstanding messages: 4 MiB of them, but at least 4 and at
// most 256.
func depth(size int) int { return min(256, max(4, 4<<20/size)) }

// post posts a message on a queue pair.
func (f *flow) post(qp *verbs.QP) error {
	return qp.Start().Signaled().Write(f.there.mr.RKey(), f.there.mr.Addr()).SGE(f.here.mr.SGE(0, f.size)).Complete()
}

// wait waits for completions of the end's messages and counts them.
func (e *end) wait(wcs []verbs.WC, count *int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := e.cq.Wait(ctx, wcs)
	if err != nil {
		return err
	}
	for _, wc := range wcs[:n] {
		if wc.Status != rdma.StatusSuccess {
			return fmt.Errorf("%v ended with %v", wc.Opcode, wc.Status)
		}
	}
	*count += n
	return nil
}

// check sends one message over the last queue pair and compares it.
func (f *flow) check() error {
	rand.NewChaCha8([32]byte{2}).Read(f.here.mr.Bytes())
	clear(f.there.mr.Bytes())
	if err := f.post(f.here.qps[len(f.here.qps)-1]); err != nil {
		return err
	}
	if err := f.here.wait(make([]verbs.WC, 1), new(int)); err != nil {
		return err
	}
	if !bytes.Equal(f.here.mr.Bytes(), f.there.mr.Bytes()) {
		return errors.New("the data that arrived is not the data that was sent")
	}
	return nil
}

// run sends messages for the time d, round-robin over all queue pairs, with depth messages in
// flight. It returns the rate.
func (f *flow) run(d time.Duration, depth int) (float64, error) {
	wcs := make([]verbs.WC, depth)
	posted, done := 0, 0
	start := time.Now()
	for end := start.Add(d); ; {
		more := time.Now().Before(end)
		if !more && done == posted {
			f.sent += done
			return float64(done) * float64(f.size) / float64(time.Since(start).Nanoseconds()), nil
		}
		for more && posted-done < depth {
			if err := f.post(f.here.qps[posted%len(f.here.qps)]); err != nil {
				return 0, err
			}
			posted++
		}
		if err := f.here.wait(wcs, &done); err != nil {
			return 0, err
		}
	}
}

// rate returns the case of messages over a flow. It takes a pointer to the flow, because
// the flow is created when the row is measured.
func rate(name string, f **flow) bench.Case {
	return bench.Case{Name: name, Sample: func(d time.Duration) (float64, error) { return (*f).run(d, depth((*f).size)) }}
}
