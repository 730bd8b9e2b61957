// Program outside runs two software RDMA devices over a network of its own:
// datagrams travel through Go channels. It belongs to another module than
// softmkey, so it can use public packages only. It sends a block from one
// device to the other through a memory key that signs it, and then detects a
// damaged block.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "outside:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := &network{conns: make(map[netip.AddrPort]*conn)}
	a, err := open(n, "2001:db8::a")
	if err != nil {
		return err
	}
	b, err := open(n, "2001:db8::b")
	if err != nil {
		return err
	}
	if err := errors.Join(a.qp.Connect(b.qp.Endpoint(), nil), b.qp.Connect(a.qp.Endpoint(), nil)); err != nil {
		return err
	}

	// A block of data, to which the key adds a T10-DIF field on the wire.
	data, err := a.pd.Register(make([]byte, 512), rdma.LocalWrite)
	if err != nil {
		return err
	}
	copy(data.Bytes(), "a block from another module")
	disk, err := b.pd.Register(make([]byte, 520), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		return err
	}
	key, err := a.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 4})
	if err != nil {
		return err
	}
	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 1}
	wr := a.qp.Start()
	wr.Configure(key).Access(rdma.LocalWrite).List(data.SGE(0, 512)).Signature(mkey.Signature{Wire: &dif})
	wr.ID(1).Signaled().Write(disk.RKey(), disk.Addr()).SGE(key.SGE(0, 520))
	if err := wr.Complete(); err != nil {
		return err
	}
	if err := a.wait(ctx); err != nil {
		return err
	}
	if err := dif.Verify(disk.Bytes()); err != nil {
		return err
	}
	fmt.Printf("the peer has %q with the field %x\n", disk.Bytes()[:27], disk.Bytes()[512:])

	// The READ detects the damage on the peer's disk, but completes with
	// success.
	disk.Bytes()[3] ^= 1
	if err := a.qp.Start().ID(2).Signaled().Read(disk.RKey(), disk.Addr()).SGE(key.SGE(0, 520)).Complete(); err != nil {
		return err
	}
	if err := a.wait(ctx); err != nil {
		return err
	}
	bad, err := key.Check()
	if err != nil {
		return err
	}
	fmt.Println("then it has a", bad)

	// Errors carry an errno.
	var e *operr.Error
	err = a.pd.Close()
	if !errors.As(err, &e) || !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("closing a PD in use: %v", err)
	}
	fmt.Println(err)
	return nil
}

// end is a device with a connection.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
}

func open(n *network, addr string) (e *end, err error) {
	ip := netip.MustParseAddr(addr)
	e = new(end)
	if e.dev, err = verbs.Open(ip, &verbs.DeviceOptions{Conn: n.listen(netip.AddrPortFrom(ip, 4791))}); err != nil {
		return nil, err
	}
	if e.pd, err = e.dev.NewPD(); err != nil {
		return nil, err
	}
	if e.cq, err = e.dev.NewCQ(16); err != nil {
		return nil, err
	}
	e.qp, err = e.pd.NewQP(verbs.QPAttr{SendCQ: e.cq})
	return e, err
}

// wait waits for a completion, which must be a success.
func (e *end) wait(ctx context.Context) error {
	wcs := make([]rdma.WC, 1)
	if _, err := e.cq.Wait(ctx, wcs); err != nil {
		return err
	}
	if wcs[0].Status != rdma.StatusSuccess {
		return fmt.Errorf("request %d: %v: %w", wcs[0].ID, wcs[0].Status, wcs[0].Err)
	}
	return nil
}

// network is a network of this process.
type network struct {
	mu    sync.Mutex
	conns map[netip.AddrPort]*conn
}

func (n *network) listen(addr netip.AddrPort) *conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &conn{network: n, local: addr, in: make(chan packetconn.Train, 1024), closed: make(chan struct{})}
	n.conns[addr] = c
	return c
}

func (n *network) at(addr netip.AddrPort) *conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conns[addr]
}

// conn is a packetconn.Conn.
type conn struct {
	network *network
	local   netip.AddrPort
	in      chan packetconn.Train
	once    sync.Once
	closed  chan struct{}
}

func (c *conn) LocalAddr() netip.AddrPort { return c.local }

func (c *conn) Limits() packetconn.Limits {
	return packetconn.Limits{Datagrams: 16, Bytes: packetconn.RecvSize, Trains: 8}
}

// Send delivers copies of the trains. Trains for which a peer has no room are
// lost.
func (c *conn) Send(trains []packetconn.Train) (int, error) {
	for _, t := range trains {
		to := c.network.at(t.Addr)
		if to == nil {
			continue
		}
		t.Addr, t.Buf = c.local, append([]byte(nil), t.Buf...)
		if t.Seg <= 0 {
			t.Seg = len(t.Buf)
		}
		select {
		case to.in <- t:
		default:
		}
	}
	return len(trains), nil
}

func (c *conn) Recv(trains []packetconn.Train) (int, error) {
	select {
	case t := <-c.in:
		take(&trains[0], t)
		return 1, nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Poll makes conn a packetconn.Poller.
func (c *conn) Poll(trains []packetconn.Train) (int, error) {
	select {
	case t := <-c.in:
		take(&trains[0], t)
		return 1, nil
	default:
		return 0, nil
	}
}

func take(d *packetconn.Train, t packetconn.Train) {
	buf := d.Buf[:cap(d.Buf)]
	*d = packetconn.Train{Addr: t.Addr, Buf: buf[:copy(buf, t.Buf)], Seg: t.Seg}
}

func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = nil
	})
	return err
}
