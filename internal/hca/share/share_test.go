//go:build linux

package share_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/share"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// patience limits waits. No result depends on it.
const patience = 20 * time.Second

// at returns an address that no other test uses, with the port that devices use.
func at(last byte) netip.AddrPort {
	return netip.AddrPortFrom(udptest.Addr(last), 4791)
}

// process is a device with its objects, as each process at an address has one.
type process struct {
	t    *testing.T
	conn *share.Conn
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
}

// rings makes join use rings.
var rings bool

func join(t *testing.T, addr netip.AddrPort) *process {
	t.Helper()
	c, err := share.Listen(addr, nil, false)
	fatal.If(t, err)
	if rings {
		fatal.If(t, c.Meet(nil, false))
	}
	p := &process{t: t, conn: c}
	p.dev, err = verbs.Open(addr.Addr(), &verbs.DeviceOptions{Conn: c})
	if err == nil {
		p.pd, err = p.dev.NewPD()
	}
	if err == nil {
		p.cq, err = p.dev.NewCQ(256)
	}
	fatal.If(t, err)
	t.Cleanup(func() { engine.PortOf(p.dev).Close() })
	return p
}

// leave ends a process: nobody closes its objects.
func (p *process) leave() { engine.PortOf(p.dev).Close() }

func (p *process) qp() *verbs.QP {
	p.t.Helper()
	qp, err := p.pd.NewQP(verbs.QPAttr{SendCQ: p.cq, MaxInlineData: 64})
	fatal.If(p.t, err)
	return qp
}

// flow is a connection over which one message after another goes and is compared.
type flow struct {
	t        *testing.T
	a, b     *verbs.QP
	out, in  *verbs.MR
	cqA, cqB *verbs.CQ
}

const messageLen = 100 << 10

// flowTo connects a QP of p with one of q. Completion queues of their own keep flows apart.
func (p *process) flowTo(q *process) *flow {
	p.t.Helper()
	f := &flow{t: p.t}
	must := func(err error) {
		p.t.Helper()
		fatal.If(p.t, err)
	}
	var err error
	f.cqA, err = p.dev.NewCQ(64)
	must(err)
	f.cqB, err = q.dev.NewCQ(64)
	must(err)
	f.a, err = p.pd.NewQP(verbs.QPAttr{SendCQ: f.cqA})
	must(err)
	f.b, err = q.pd.NewQP(verbs.QPAttr{SendCQ: f.cqB})
	must(err)
	f.out, err = p.pd.Register(make([]byte, messageLen), rdma.LocalWrite)
	must(err)
	f.in, err = q.pd.Register(make([]byte, messageLen), rdma.LocalWrite)
	must(err)
	must(f.a.Connect(f.b.Endpoint(), nil))
	must(f.b.Connect(f.a.Endpoint(), nil))
	return f
}

// move sends n messages of size bytes and compares each.
func (f *flow) move(n, size int) error {
	for i := range n {
		out := f.out.Bytes()[:size]
		for k := range out {
			out[k] = byte(k*7 + i*13 + k>>8)
		}
		clear(f.in.Bytes())
		if _, err := f.b.PostRecv(verbs.RecvWR{ID: 1, SGEs: []rdma.SGE{f.in.SGE(0, size)}}); err != nil {
			return err
		}
		wr := f.a.Start()
		wr.ID(2).Signaled().Send().SGE(f.out.SGE(0, size))
		if err := wr.Complete(); err != nil {
			return err
		}
		for _, cq := range []*verbs.CQ{f.cqA, f.cqB} {
			ctx, cancel := context.WithTimeout(f.t.Context(), patience)
			var wc [1]rdma.WC
			_, err := cq.Wait(ctx, wc[:])
			cancel()
			if err != nil || wc[0].Status != rdma.StatusSuccess {
				return fmt.Errorf("message %d: %v, %v", i, wc[0].Status, err)
			}
		}
		if !bytes.Equal(out, f.in.Bytes()[:size]) {
			return fmt.Errorf("message %d differs", i)
		}
	}
	return nil
}

// run moves messages over all flows at a time.
func run(t *testing.T, flows []*flow, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i, f := range flows {
		all.Go(func() {
			if err := f.move(n, 1+i*7919%messageLen); err != nil {
				t.Errorf("flow %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// TestShare joins three processes at an address, moves messages between all of them and a peer at
// another address, and lets the first process leave.
func TestShare(t *testing.T) {
	addr := at(1)
	a := join(t, addr)
	if a.conn.Shared() || a.conn.Member() != 0 {
		t.Errorf("alone: shared %v, number %d", a.conn.Shared(), a.conn.Member())
	}
	peer := join(t, at(2))
	early := peer.flowTo(a) // a connection from before the second process came
	run(t, []*flow{early}, 3)
	b, c := join(t, addr), join(t, addr)
	var flows []*flow
	for _, p := range []*process{a, b, c, peer} {
		for _, q := range []*process{a, b, c, peer} {
			if q != p || p == b {
				flows = append(flows, p.flowTo(q))
			}
		}
	}
	run(t, append(flows, early), 10)
	for i, p := range []*process{a, b, c} {
		if n := p.qp().Num(); !p.conn.Shared() || n>>18 != uint32(i) {
			t.Errorf("process %d: shared %v, QP %#x", i, p.conn.Shared(), n)
		}
	}

	left := []*flow{b.flowTo(c), b.flowTo(peer), peer.flowTo(c), c.flowTo(b)}
	var moving sync.WaitGroup
	moving.Go(func() { run(t, left, 40) })
	a.leave()
	moving.Wait()
	d := join(t, addr)
	if d.conn.Member() != 0 {
		t.Errorf("the free number 0 was not given again, but %d", d.conn.Member())
	}
	run(t, append(left, d.flowTo(b), peer.flowTo(d)), 10)
}

// TestServices connects to the services of two processes at an address, and to one that nobody has.
func TestServices(t *testing.T) {
	addr := at(3)
	a, b, peer := join(t, addr), join(t, addr), join(t, at(4))
	for i, p := range []*process{a, b} {
		l, err := cm.Listen(p.dev, uint16(7000+i), nil)
		fatal.If(t, err)
		defer l.Close()
		go func() {
			for {
				req, err := l.Accept(context.Background())
				if err != nil {
					return
				}
				if _, err := req.Accept(context.Background(), p.qp(), &cm.ConnOptions{PrivateData: []byte{byte(i + 1)}}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	if _, err := cm.Listen(b.dev, 7000, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener in another process: %v", err)
	}
	for _, from := range []*process{peer, a, b} {
		for range 4 { // whoever reads the request
			for i := range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				conn, err := cm.Dial(ctx, from.qp(), netip.AddrPortFrom(addr.Addr(), uint16(7000+i)), nil)
				cancel()
				fatal.If(t, err)
				if conn.PrivateData()[0] != byte(i+1) {
					t.Errorf("service %d answered as %d", 7000+i, conn.PrivateData()[0])
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		var refused *cm.RejectError
		if _, err := cm.Dial(t.Context(), from.qp(), netip.AddrPortFrom(addr.Addr(), 7002), nil); !errors.As(err, &refused) {
			t.Errorf("a service that nobody has: %v", err)
		}
	}
}

// TestRefusals tests the addresses that cannot be shared.
func TestRefusals(t *testing.T) {
	addr := at(5)
	a := join(t, addr)
	if _, err := share.Listen(addr, nil, true); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("alone at an address that is in use: %v", err)
	}
	if _, err := udp.Listen(addr, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("an ordinary socket beside a process: %v", err)
	}
	a.leave()
	c, err := udp.Listen(addr, nil)
	fatal.If(t, err)
	defer c.Close()
	for _, alone := range []bool{false, true} {
		if _, err := share.Listen(addr, nil, alone); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("beside an ordinary socket: %v", err)
		}
	}
	var conns []*share.Conn
	for i := range 64 {
		c, err := share.Listen(at(6), nil, false)
		if err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		if conns = append(conns, c); c.Member() != uint32(i) {
			t.Errorf("process %d has the number %d", i, c.Member())
		}
		if i == 8 && testing.Short() { // each has 65 descriptors
			break
		}
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMain is also the process that TestKilledProcesses and TestRingKilled kill.
func TestMain(m *testing.M) {
	if text := os.Getenv("SHARE_TEST_ADDR"); text != "" {
		c, err := share.Listen(netip.MustParseAddrPort(text), nil, false)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if to := os.Getenv("SHARE_TEST_FLOOD"); to != "" {
			flood(c, netip.MustParseAddrPort(to))
		}
		fmt.Println(c.Member())
		select {}
	}
	os.Exit(m.Run())
}

// child starts this test's binary as a process at an address, and returns its output.
func child(t *testing.T, addr netip.AddrPort, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "SHARE_TEST_ADDR="+addr.String()), env...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	fatal.If(t, err)
	return cmd, out
}

// TestKilledProcesses kills the first process at an address, which opened the sockets, and another
// one, whose socket has no reader afterwards.
func TestKilledProcesses(t *testing.T) {
	addr := at(7)
	start := func(number uint32) (kill func()) {
		t.Helper()
		cmd, out := child(t, addr)
		kill = sync.OnceFunc(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		t.Cleanup(kill)
		var got uint32
		if _, err := fmt.Fscan(out, &got); err != nil || got != number {
			t.Fatalf("number %d, not %d: %v", got, number, err)
		}
		return kill
	}
	first := start(0)
	a, b := join(t, addr), join(t, addr)
	fourth := start(3)
	flows := []*flow{a.flowTo(b), b.flowTo(a)}
	run(t, flows, 5)
	first()
	run(t, flows, 5)
	fourth()
	run(t, flows, 5)
	again := join(t, addr)
	if again.conn.Member() != 0 {
		t.Errorf("the killed process's number was not given again, but %d", again.conn.Member())
	}
	run(t, append(flows, again.flowTo(b), a.flowTo(again)), 5)
}

// datagram returns a packet of size bytes to a QP: enough of one for the steering.
func datagram(qpn uint32, size int, fill byte) []byte {
	b := bytes.Repeat([]byte{fill}, size)
	binary.BigEndian.PutUint32(b[4:], qpn)
	return b
}

// TestTrainsForSeveralProcesses sends trains with packets for several processes. Each process
// must get its own packets, in order and with the right source, whichever process received the
// train.
func TestTrainsForSeveralProcesses(t *testing.T) {
	addr, from := at(8), at(9)
	conns := make([]*share.Conn, 3)
	for i := range conns {
		c, err := share.Listen(addr, nil, false)
		fatal.If(t, err)
		defer c.Close()
		conns[i] = c
	}
	sender, err := udp.Listen(from, nil)
	fatal.If(t, err)
	defer sender.Close()
	const seg = 64
	owners := []uint32{2, 2, 0, 1, 1, 2, 0, 2}
	var want [3][]byte
	train := packetconn.Train{Addr: addr, Seg: seg, TOS: 0x28}
	for i, o := range owners {
		size := seg
		if i == len(owners)-1 {
			size = 40
		}
		train.Buf = append(train.Buf, datagram(o<<18|5, size, byte(i))...)
		want[o] = append(want[o], byte(i))
	}
	if _, err := sender.Send([]packetconn.Train{train}); err != nil {
		t.Fatal(err)
	}
	// Broken messages in an inbox, and one from nowhere, change nothing.
	junk, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("@softmkey/%d/%v/1/inbox", os.Geteuid(), addr), Net: "unixpacket"})
	fatal.If(t, err)
	defer junk.Close()
	for _, b := range [][]byte{{1}, make([]byte, 38), make([]byte, 100<<10), append([]byte{1}, make([]byte, 100)...)} {
		if _, err := junk.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() { receiveOwn(t, i, c, from, want[i]) })
	}
	all.Wait()
}

// receiveOwn receives the packets of a process in TestTrainsForSeveralProcesses.
func receiveOwn(t *testing.T, i int, c *share.Conn, from netip.AddrPort, want []byte) {
	trains := []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}, {Buf: make([]byte, packetconn.RecvSize)}}
	var got []byte
	for len(got) < len(want) {
		n, err := c.Recv(trains)
		if err != nil {
			t.Error(err)
			return
		}
		for k := range trains[:n] {
			d := &trains[k]
			if d.Addr != from || d.TOS != 0x28 {
				t.Errorf("process %d: from %v with type of service %#x", i, d.Addr, d.TOS)
			}
			for j := range d.Count() {
				b := d.At(j)
				got = append(got, b[len(b)-1])
				if num := binary.BigEndian.Uint32(b[4:]); num != uint32(i)<<18|5 {
					t.Errorf("process %d got a packet to QP %#x", i, num)
				}
			}
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("process %d got %v, not %v", i, got, want)
	}
}

// TestOtherUserIsRefused asks a process for the sockets of its address, as another user. The
// process must refuse.
func TestOtherUserIsRefused(t *testing.T) {
	addr := at(10)
	a := join(t, addr)
	n := 0
	err := asOther(t, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@softmkey/0/%v/0/door", addr)})
		}
		if err == nil {
			err = unix.Send(fd, []byte("s"), 0)
		}
		if err == nil {
			n, err = unix.Read(fd, make([]byte, 100))
		}
		return err
	})
	// The door is closed without an answer, perhaps before the question is read.
	if n > 0 || err != nil && err != syscall.ECONNRESET && err != syscall.EPIPE {
		t.Errorf("another user at the door: %d bytes, %v", n, err)
	}
	if a.conn.Shared() {
		t.Error("another user made the process open the sockets")
	}
}

// TestOtherUserIsPassedOver forges a packet that another process at the address seems to hand over,
// as another user, and hands over a real one after it. The process must receive the real one only.
// The forged message brings a descriptor, which must not stay open.
func TestOtherUserIsPassedOver(t *testing.T) {
	addr, from := at(11), at(12)
	c, err := share.Listen(addr, nil, false)
	fatal.If(t, err)
	defer c.Close()
	second, err := share.Listen(addr, nil, false) // from now on the address is shared
	fatal.If(t, err)
	defer second.Close()

	// The header is a flag, the type of service, the packet length, and the port and address of
	// the source.
	head := binary.BigEndian.AppendUint16([]byte{0, 0x28, 0, 0}, from.Port())
	ip := from.Addr().As16()
	head = append(append(head, ip[:]...), make([]byte, 16)...)
	hand := func(fill byte, rights []byte) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@softmkey/0/%v/0/inbox", addr)}); err != nil {
			return err
		}
		return unix.Sendmsg(fd, append(bytes.Clone(head), datagram(5, 64, fill)...), rights, nil, 0)
	}
	null, err := os.Open(os.DevNull)
	fatal.If(t, err)
	defer null.Close()
	before := descriptors(t)
	fatal.If(t, asOther(t, func() error { return hand(1, unix.UnixRights(int(null.Fd()))) }))
	fatal.If(t, hand(2, nil))
	receiveOwn(t, 0, c, from, []byte{2})
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

// TestDoorIsOpen keeps as many silent connections to a process as it serves at a time, as another
// user. A process that joins must be served all the same.
func TestDoorIsOpen(t *testing.T) {
	addr := at(13)
	a, err := share.Listen(addr, nil, false)
	fatal.If(t, err)
	defer a.Close()
	var silent []int
	defer func() {
		for _, fd := range silent {
			unix.Close(fd)
		}
	}()
	err = asOther(t, func() error {
		for range 16 {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				silent = append(silent, fd)
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@softmkey/0/%v/0/door", addr)})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	fatal.If(t, err)
	b, err := share.Listen(addr, nil, false)
	fatal.If(t, err)
	b.Close()
}
