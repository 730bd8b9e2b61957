package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// The protocol of Debian's rping. The client names a buffer in a message; the server
// reads it with an RDMA READ and sends "go ahead". The client names another buffer; the
// server writes the same bytes there with an RDMA WRITE and sends "go ahead" again. A
// message is an address, a key and a size, big-endian.
const rpingMessage = 16

// rpingEnd is one end of an rping connection on our device.
type rpingEnd struct {
	t    *testing.T
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	data *verbs.MR
	in   *verbs.MR

	early map[rdma.Opcode]int // completions for which no call has waited yet
}

func newRpingEnd(t *testing.T, dev *verbs.Device, size int) *rpingEnd {
	t.Helper()
	e := &rpingEnd{t: t, early: make(map[rdma.Opcode]int)}
	e.pd, e.cq, e.qp = newQP(t, dev, verbs.QPAttr{MaxInlineData: rpingMessage})
	var err error
	e.data, err = e.pd.Register(make([]byte, size), rdma.LocalWrite|rdma.RemoteRead|rdma.RemoteWrite)
	check(t, err)
	e.in, err = e.pd.Register(make([]byte, rpingMessage), rdma.LocalWrite)
	check(t, err)
	check(t, e.qp.Init(rdma.LocalWrite|rdma.RemoteRead|rdma.RemoteWrite))
	closeLater(t, e.qp, e.data, e.in, e.cq, e.pd)
	e.receive()
	return e
}

func (e *rpingEnd) receive() {
	if _, err := e.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{e.in.SGE(0, rpingMessage)}}); err != nil {
		e.t.Error(err)
	}
}

// errFlushed is the error for a request that was flushed: the connection has ended.
var errFlushed = errors.New("the request was flushed")

// next waits for a completion of one kind. If an acknowledgement is lost, the peer's
// reply arrives before the completion of the message.
func (e *rpingEnd) next(ctx context.Context, want rdma.Opcode) error {
	for e.early[want] == 0 {
		var wc [1]rdma.WC
		if _, err := e.cq.Wait(ctx, wc[:]); err != nil {
			return err
		}
		switch {
		case wc[0].Status == rdma.StatusWRFlushErr:
			return errFlushed
		case wc[0].Status != rdma.StatusSuccess:
			return fmt.Errorf("completion %+v, want %v", wc[0], want)
		}
		e.early[wc[0].Opcode]++
	}
	e.early[want]--
	return nil
}

// send sends a message that names a buffer.
func (e *rpingEnd) send(ctx context.Context, addr uint64, rkey, size uint32) error {
	b := binary.BigEndian.AppendUint64(nil, addr)
	b = binary.BigEndian.AppendUint32(b, rkey)
	b = binary.BigEndian.AppendUint32(b, size)
	wr := e.qp.Start()
	wr.Signaled().Send().Inline(b)
	if err := wr.Complete(); err != nil {
		return err
	}
	return e.next(ctx, rdma.OpSend)
}

// serve serves the rounds of a client until the connection ends.
func (e *rpingEnd) serve(ctx context.Context, conn *cm.Conn) (rounds int, err error) {
	for {
		var named [2][]byte
		for i := range named {
			if err := e.next(ctx, rdma.OpRecv); err != nil {
				return rounds, ended(ctx, conn, err)
			}
			named[i] = bytes.Clone(e.in.Bytes())
			e.receive()
			addr, rkey, size := binary.BigEndian.Uint64(named[i]), binary.BigEndian.Uint32(named[i][8:]), binary.BigEndian.Uint32(named[i][12:])
			wr, op := e.qp.Start(), rdma.OpRDMARead
			if i == 0 {
				wr.Signaled().Read(rkey, addr).SGE(e.data.SGE(0, int(size)))
			} else {
				op = rdma.OpRDMAWrite
				wr.Signaled().Write(rkey, addr).SGE(e.data.SGE(0, int(size)))
			}
			if err := wr.Complete(); err != nil {
				return rounds, err
			}
			if err := e.next(ctx, op); err != nil {
				return rounds, err
			}
			if err := e.send(ctx, 0, 0, 0); err != nil {
				if i == 1 {
					// The client has the message that ends its last round, disconnects,
					// and the acknowledgement was lost.
					rounds++
				}
				return rounds, ended(ctx, conn, err)
			}
		}
		rounds++
	}
}

// ended returns how a connection has ended whose requests were flushed, and any other
// error as it is.
func ended(ctx context.Context, conn *cm.Conn, err error) error {
	if !errors.Is(err, errFlushed) {
		return err
	}
	select {
	case <-conn.Done():
		return conn.Err()
	case <-ctx.Done():
		return err
	}
}

// ping executes the client's side of a number of rounds.
func (e *rpingEnd) ping(ctx context.Context, rounds int) error {
	half := len(e.data.Bytes()) / 2
	for n := range rounds {
		out, back := e.data.Bytes()[:half], e.data.Bytes()[half:]
		for i := range out {
			out[i] = byte('A' + (n+i)%26)
		}
		out[half-1] = 0 // the server returns strlen bytes
		clear(back)
		for i := range 2 {
			if err := e.send(ctx, e.data.Addr()+uint64(i*half), e.data.RKey(), uint32(half)); err != nil {
				return err
			}
			if err := e.next(ctx, rdma.OpRecv); err != nil {
				return err
			}
			e.receive()
		}
		if !bytes.Equal(out, back) {
			return fmt.Errorf("round %d: %d bytes came back as others", n, half)
		}
	}
	return nil
}

func (n *network) host(v6 bool) (guest, device netip.Addr) {
	g := n.r.Guests[0]
	if v6 {
		return g.Addr6, n.r.Addr6
	}
	return g.Addr4, n.r.Addr4
}

// families runs a test over IPv4 and IPv6.
func families(t *testing.T, f func(t *testing.T, v6 bool)) {
	t.Run("IPv4", func(t *testing.T) { f(t, false) })
	t.Run("IPv6", func(t *testing.T) { f(t, true) })
}
