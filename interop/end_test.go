package interop

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/interop/rig"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// patience limits every wait. No measurement depends on it.
const patience = time.Minute

// regionSize is the size of an end's memory: one message of 16 MiB and guard areas around
// it.
const regionSize = 16<<20 + 64<<10

// end is one end of a connection: a queue pair with a region of memory, in the kernel of
// a guest or on one of our devices. Work and completions use the types of package peer;
// the memory of work is the end's region.
type end interface {
	String() string
	addr(v6 bool) netip.Addr
	qpn() uint32
	connect(peer.ConnectConfig) error

	region() (addr uint64, rkey uint32)
	fill(off, n int, seed uint64) error
	write(off int, p []byte) error
	read(off int, p []byte) error
	crc(off, n int) (uint32, error)

	post(peer.Work) error
	wait(n int) ([]peer.Completion, error)

	// invalidatable returns a key for n bytes of the region at off, which the other
	// end may use, and revoke with a SEND with invalidate.
	invalidatable(off, n int) (rkey uint32, err error)

	Close() error
}

// guestEnd is an end in a guest.
type guestEnd struct {
	g *rig.Guest
	s *peer.Session
	q *peer.QP
	b *peer.Buffer
}

func openGuest(ctx context.Context, g *rig.Guest) (*guestEnd, error) {
	s, err := peer.Dial(ctx, g.Addr4)
	if err != nil {
		return nil, err
	}
	e := &guestEnd{g: g, s: s}
	if e.q, err = s.NewQP(peer.QPConfig{}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if e.b, err = s.NewBuffer(regionSize, 0, ""); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return e, nil
}

func (e *guestEnd) String() string { return "kernel" }

func (e *guestEnd) addr(v6 bool) netip.Addr {
	if v6 {
		return e.g.Addr6
	}
	return e.g.Addr4
}

func (e *guestEnd) qpn() uint32                        { return e.q.Num }
func (e *guestEnd) connect(c peer.ConnectConfig) error { return e.q.Connect(c) }
func (e *guestEnd) region() (uint64, uint32)           { return e.b.Addr, e.b.RKey }
func (e *guestEnd) fill(off, n int, seed uint64) error { return e.b.Fill(off, n, seed, 0) }
func (e *guestEnd) write(off int, p []byte) error      { return e.b.Write(off, p) }
func (e *guestEnd) read(off int, p []byte) error       { return e.b.Read(off, p) }
func (e *guestEnd) crc(off, n int) (uint32, error)     { return e.b.CRC(off, n) }
func (e *guestEnd) Close() error                       { return e.s.Close() }

func (e *guestEnd) post(w peer.Work) error {
	w.Buf = e.b
	return e.q.Post(w)
}

func (e *guestEnd) wait(n int) ([]peer.Completion, error) {
	c, err := e.s.Wait(n, patience)
	if err == nil && len(c) != n {
		err = fmt.Errorf("%d completions of %d", len(c), n)
	}
	return c, err
}

// invalidatable binds a memory window, the only kind of key in user space verbs that a
// peer can revoke.
func (e *guestEnd) invalidatable(off, n int) (uint32, error) {
	w, err := e.s.NewWindow()
	if err != nil {
		return 0, err
	}
	rkey, err := e.q.Bind(0, w, e.b, off, n, "")
	if err != nil {
		return 0, err
	}
	c, err := e.wait(1)
	if err == nil && c[0].Status != 0 {
		err = fmt.Errorf("binding a window: status %d", c[0].Status)
	}
	return rkey, err
}

// deviceEnd is an end on one of our devices.
type deviceEnd struct {
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	keys []*verbs.MKey

	timeout int // replaces ConnectConfig.Timeout if it is not 0
}

// newDeviceEnd creates an end on a device, which the caller owns.
func newDeviceEnd(dev *verbs.Device, attr verbs.QPAttr) (*deviceEnd, error) {
	e := &deviceEnd{dev: dev}
	var err error
	if e.pd, err = dev.NewPD(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.NewCQ(1 << 12); err != nil {
		return nil, err
	}
	attr.SendCQ, attr.MaxSendWR, attr.MaxRecvWR, attr.MaxInlineData = e.cq, 256, 256, 512
	if e.qp, err = e.pd.NewQP(attr); err != nil {
		return nil, err
	}
	e.mr, err = e.pd.Register(make([]byte, regionSize), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)
	return e, err
}

func (e *deviceEnd) String() string           { return "device" }
func (e *deviceEnd) addr(bool) netip.Addr     { return e.dev.Addr() }
func (e *deviceEnd) qpn() uint32              { return e.qp.Num() }
func (e *deviceEnd) region() (uint64, uint32) { return e.mr.Addr(), e.mr.RKey() }

// connect uses Modify for each state, because Connect chooses its own PSN.
func (e *deviceEnd) connect(c peer.ConnectConfig) error {
	if e.timeout != 0 {
		c.Timeout = e.timeout
	}
	mtu, ok := ibv.MTUOf(c.MTU)
	if !ok {
		return fmt.Errorf("no such MTU: %d", c.MTU)
	}
	m := ibv.QPModify{
		State: rdma.StateInit, Port: 1,
		AccessFlags: rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic,
	}
	if err := engine.QPOf(e.qp).Modify(m, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags); err != nil {
		return err
	}
	m = ibv.QPModify{
		State: rdma.StateRTR, AV: rdma.AH{DGID: rdma.GIDOf(c.Destination)}, PathMTU: mtu,
		DestQPN: c.QPN, RQPSN: c.RecvPSN, MaxDestRdAtomic: c.MaxDestRDAtomic, MinRNRTimer: uint8(c.MinRNRTimer),
	}
	if err := engine.QPOf(e.qp).Modify(m, ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN|
		ibv.AttrMaxDestRdAtomic|ibv.AttrMinRNRTimer); err != nil {
		return err
	}
	m = ibv.QPModify{
		State: rdma.StateRTS, SQPSN: c.SendPSN, Timeout: uint8(c.Timeout), RetryCnt: uint8(c.RetryCount),
		RNRRetry: uint8(c.RNRRetry), MaxRdAtomic: c.MaxRDAtomic,
	}
	return engine.QPOf(e.qp).Modify(m, ibv.AttrState|ibv.AttrSQPSN|ibv.AttrTimeout|ibv.AttrRetryCnt|ibv.AttrRNRRetry|ibv.AttrMaxRdAtomic)
}

// order informs the race detector of an order that it cannot see. The peer's accesses to
// our memory are ordered by messages between the two sides through the peer, which is
// another machine. Here the order is represented by a lock that the receiving goroutine
// takes for every packet.
func (e *deviceEnd) order() {
	// Fails in the error state, in which nothing accesses the memory.
	_ = engine.QPOf(e.qp).Modify(ibv.QPModify{MinRNRTimer: engine.QPOf(e.qp).Query().MinRNRTimer}, ibv.AttrMinRNRTimer)
}

func (e *deviceEnd) fill(off, n int, seed uint64) error {
	e.order()
	defer e.order()
	peer.Pattern(e.mr.Bytes()[off:off+n], seed, 0)
	return nil
}

func (e *deviceEnd) write(off int, p []byte) error {
	e.order()
	defer e.order()
	copy(e.mr.Bytes()[off:], p)
	return nil
}

func (e *deviceEnd) read(off int, p []byte) error {
	e.order()
	copy(p, e.mr.Bytes()[off:])
	return nil
}

func (e *deviceEnd) crc(off, n int) (uint32, error) {
	e.order()
	return crc32.ChecksumIEEE(e.mr.Bytes()[off : off+n]), nil
}

// post posts the work as one chain, or as one list of receive requests.
func (e *deviceEnd) post(w peer.Work) error {
	count := max(w.Count, 1)
	if w.Op == peer.Recv {
		wrs := make([]verbs.RecvWR, count)
		for i := range wrs {
			wrs[i] = verbs.RecvWR{ID: w.ID + uint64(i), SGEs: e.sges(w, i)}
		}
		_, err := e.qp.PostRecv(wrs...)
		return err
	}
	chain := e.qp.Start()
	for i := range count {
		e.add(chain, w, i)
	}
	return chain.Complete()
}

// sges divides the memory of request i into the number of pieces that the work specifies.
func (e *deviceEnd) sges(w peer.Work, i int) []rdma.SGE {
	if w.Len == 0 {
		return nil
	}
	n, off := max(w.SGEs, 1), w.Off+i*w.Step
	piece := w.Len / n
	var sges []rdma.SGE
	for k := range n {
		length := piece
		if k == n-1 {
			length = w.Len - k*piece
		}
		sges = append(sges, e.mr.SGE(off+k*piece, length))
	}
	return sges
}

// add appends request i of the work to a chain.
func (e *deviceEnd) add(chain verbs.Chain, w peer.Work, i int) {
	chain.ID(w.ID + uint64(i))
	if !strings.Contains(w.Flags, "u") {
		chain.Signaled()
	}
	if strings.Contains(w.Flags, "f") {
		chain.Fence()
	}
	if strings.Contains(w.Flags, "e") {
		chain.Solicited()
	}
	raddr, imm := w.RemoteAddr+uint64(i)*w.RemoteStep, w.Imm+uint32(i)
	switch w.Op {
	case peer.Send:
		chain.Send()
	case peer.SendImm:
		chain.SendImm(imm)
	case peer.SendInvalidate:
		chain.SendInv(w.InvKey)
	case peer.Write:
		chain.Write(w.RKey, raddr)
	case peer.WriteImm:
		chain.WriteImm(w.RKey, raddr, imm)
	case peer.Read:
		chain.Read(w.RKey, raddr)
	case peer.FetchAdd:
		chain.FetchAdd(w.RKey, raddr, w.Compare)
	case peer.CompareSwap:
		chain.CompareSwap(w.RKey, raddr, w.Compare, w.Swap)
	default:
		panic("interop: no such operation on the device: " + w.Op)
	}
	chain.SGE(e.sges(w, i)...)
}

func (e *deviceEnd) wait(n int) ([]peer.Completion, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []peer.Completion
	for len(all) < n {
		wcs := make([]rdma.WC, n-len(all))
		got, err := e.cq.Wait(ctx, wcs)
		if err != nil {
			return all, fmt.Errorf("%d completions of %d: %w", len(all), n, err)
		}
		for _, wc := range wcs[:got] {
			all = append(all, peer.Completion{
				ID: wc.ID, Status: int(wc.Status), Opcode: int(wc.Opcode), Len: int(wc.ByteLen), QPN: wc.QPNum,
				HasImm: wc.Flags&rdma.WithImm != 0, Imm: wc.Imm,
				HasInv: wc.Flags&rdma.WithInv != 0, InvKey: wc.InvalidatedKey,
			})
		}
	}
	return all, nil
}

// invalidatable configures a memory key with the region's bytes.
func (e *deviceEnd) invalidatable(off, n int) (uint32, error) {
	key, err := e.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.RemoteInvalidate, MaxEntries: 1})
	if err != nil {
		return 0, err
	}
	e.keys = append(e.keys, key)
	chain := e.qp.Start()
	chain.ID(0).Signaled().Configure(key).Access(rdma.RemoteRead | rdma.RemoteWrite | rdma.LocalWrite).List(e.mr.SGE(off, n))
	if err := chain.Complete(); err != nil {
		return 0, err
	}
	c, err := e.wait(1)
	if err == nil && c[0].Status != 0 {
		err = fmt.Errorf("configuring a key: status %d", c[0].Status)
	}
	return key.RKey(), err
}

func (e *deviceEnd) Close() error {
	errs := []error{e.qp.Close()}
	for _, k := range e.keys {
		errs = append(errs, k.Close())
	}
	return errors.Join(append(errs, e.mr.Close(), e.cq.Close(), e.pd.Close())...)
}

// network is the set of ends of a test.
type network struct {
	t   *testing.T
	r   *rig.Rig
	dev map[bool]*verbs.Device // ours, on IPv4 (false) and IPv6 (true), opened on demand

	damaging bool // the test damages packets, so the device counts damaged ones
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, r: sharedRig(t), dev: map[bool]*verbs.Device{}}
}

// device returns our device for an address family.
func (n *network) device(v6 bool) *verbs.Device {
	n.t.Helper()
	if n.dev[v6] == nil {
		_, addr := n.host(v6)
		dev, err := verbs.Open(addr, nil)
		check(n.t, err)
		n.dev[v6] = dev
		n.t.Cleanup(func() {
			c := dev.Counters()
			if c.BadICRC+c.Malformed+c.BadPKey+c.UnknownSource != 0 && !n.damaging {
				n.t.Errorf("the link damages nothing, but the device counts %+v", c)
			}
			if err := dev.Close(); err != nil {
				n.t.Error(err)
			}
		})
	}
	return n.dev[v6]
}

// host returns the addresses of the guest and of our device.
func (n *network) host(v6 bool) (guest, device netip.Addr) {
	if v6 {
		return n.r.Guest.Addr6, n.r.Addr6
	}
	return n.r.Guest.Addr4, n.r.Addr4
}

// families runs a test over IPv4 and IPv6.
func families(t *testing.T, f func(t *testing.T, v6 bool)) {
	t.Run("IPv4", func(t *testing.T) { f(t, false) })
	t.Run("IPv6", func(t *testing.T) { f(t, true) })
}

// newQP creates a queue pair with a PD and a CQ of its own.
func newQP(t *testing.T, dev *verbs.Device, attr verbs.QPAttr) (pd *verbs.PD, cq *verbs.CQ, qp *verbs.QP) {
	t.Helper()
	pd, err := dev.NewPD()
	check(t, err)
	cq, err = dev.NewCQ(64)
	check(t, err)
	attr.SendCQ = cq
	qp, err = pd.NewQP(attr)
	check(t, err)
	return pd, cq, qp
}

// closeLater closes objects, in this order, when the test has ended.
func closeLater(t *testing.T, objects ...io.Closer) {
	t.Cleanup(func() {
		for _, o := range objects {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// open creates the two ends of a connection: on our device, and in the guest's kernel.
func (n *network) open(t *testing.T, v6 bool) (*deviceEnd, *guestEnd) {
	t.Helper()
	a, err := newDeviceEnd(n.device(v6), verbs.QPAttr{})
	check(t, err)
	closeLater(t, a)
	b, err := openGuest(t.Context(), n.r.Guest)
	check(t, err)
	closeLater(t, b)
	return a, b
}

// join connects two ends with a path MTU. Each direction starts with a PSN that soon
// exceeds 24 bits and wraps.
func join(t *testing.T, a, b end, v6 bool, c peer.ConnectConfig) {
	t.Helper()
	psn := [2]uint32{0xfffff0, 0xffff00}
	for i, e := range [2]end{a, b} {
		other := [2]end{b, a}[i]
		c.Source, c.Destination, c.QPN = e.addr(v6), other.addr(v6), other.qpn()
		c.SendPSN, c.RecvPSN = psn[i], psn[1-i]
		check(t, e.connect(c))
	}
}
