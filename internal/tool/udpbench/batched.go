package udpbench

import (
	"errors"
	"net"
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

// batched is one end of a measurement over package udp.
type batched struct {
	c       packetconn.Conn
	out, in []packetconn.Datagrams
}

// newBatched opens a socket that receives up to trains trains per call.
func newBatched(c Config, trains int) (*batched, error) {
	conn, err := udp.Listen(c.addr(), &udp.Options{Spin: c.Spin})
	if err != nil {
		return nil, err
	}
	b := &batched{c: conn, out: make([]packetconn.Datagrams, 1), in: make([]packetconn.Datagrams, trains)}
	for i := range b.in {
		b.in[i].Buf = make([]byte, packetconn.RecvSize)
	}
	return b, nil
}

func (b *batched) close() { b.c.Close() }

type batchedSender struct{ *batched }

func (b batchedSender) send() error {
	_, err := b.c.Send(b.out)
	return err
}

type batchedReceiver struct{ *batched }

func (b batchedReceiver) recv() (int, error) {
	n, err := b.c.Recv(b.in)
	if errors.Is(err, net.ErrClosed) {
		return 0, nil
	}
	sum := 0
	for i := range b.in[:n] {
		sum += len(b.in[i].Buf)
	}
	return sum, err
}

func batchedStream(c Config, seg, count int) (sender, receiver, error) {
	a, err := newBatched(c, 0)
	if err != nil {
		return nil, nil, err
	}
	b, err := newBatched(c, 8)
	if err != nil {
		a.close()
		return nil, nil, err
	}
	a.out[0] = packetconn.Datagrams{Addr: b.c.LocalAddr(), Buf: make([]byte, seg*count), Seg: seg}
	return batchedSender{a}, batchedReceiver{b}, nil
}

type batchedPinger struct{ *batched }

func newBatchedPinger(c Config) (pinger, error) {
	b, err := newBatched(c, 1)
	if err != nil {
		return nil, err
	}
	return batchedPinger{b}, nil
}

func (b batchedPinger) addr() netip.AddrPort    { return b.c.LocalAddr() }
func (b batchedPinger) first(to netip.AddrPort) { b.in[0].Addr = to }

func (b batchedPinger) send(n int) error {
	b.out[0].Addr, b.out[0].Buf = b.in[0].Addr, b.in[0].Buf[:n]
	_, err := b.c.Send(b.out)
	return err
}

func (b batchedPinger) recv() (int, error) {
	_, err := b.c.Recv(b.in)
	return len(b.in[0].Buf), err
}
