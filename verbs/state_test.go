package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// attributes returns attributes that suffice to connect a QP to itself.
func attributes(qp *verbs.QP) ibv.QPModify {
	e := qp.Endpoint()
	return ibv.QPModify{
		AccessFlags: rdma.RemoteWrite, Port: 1, AV: rdma.AH{DGID: rdma.GIDOf(e.GID)}, PathMTU: ibv.MTU1024,
		DestQPN: e.QPN, RQPSN: e.PSN, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: e.PSN, MaxRdAtomic: 4,
	}
}

const (
	toInit = ibv.AttrState | ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrAccessFlags
	toRTR  = ibv.AttrState | ibv.AttrAV | ibv.AttrPathMTU | ibv.AttrDestQPN | ibv.AttrRQPSN | ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer
	toRTS  = ibv.AttrState | ibv.AttrTimeout | ibv.AttrRetryCnt | ibv.AttrRNRRetry | ibv.AttrSQPSN | ibv.AttrMaxRdAtomic
)

// TestModify goes through all states and tries an invalid transition in each.
func TestModify(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	m := attributes(a.qp)
	step := func(to rdma.State, mask ibv.AttrMask, change func(*ibv.QPModify)) error {
		n := m
		n.State = to
		if change != nil {
			change(&n)
		}
		return engine.QPOf(a.qp).Modify(n, mask)
	}
	refuse := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", what, err)
		}
	}
	accept := func(err error, want rdma.State) {
		t.Helper()
		if err != nil || a.qp.State() != want {
			t.Fatalf("state %v, want %v: %v", a.qp.State(), want, err)
		}
	}
	refuse("RESET to RTR", step(rdma.StateRTR, toRTR, nil))
	refuse("RESET to INIT without access flags", step(rdma.StateInit, toInit&^ibv.AttrAccessFlags, nil))
	refuse("RESET to INIT with a timeout", step(rdma.StateInit, toInit|ibv.AttrTimeout, nil))
	refuse("port 2", step(rdma.StateInit, toInit, func(m *ibv.QPModify) { m.Port = 2 }))
	refuse("posting a receive in RESET", second(a.qp.PostRecv(verbs.RecvWR{})))
	accept(step(rdma.StateInit, toInit, nil), rdma.StateInit)
	accept(step(rdma.StateInit, ibv.AttrState|ibv.AttrAccessFlags, nil), rdma.StateInit)
	refuse("posting a send in INIT", a.qp.Start().Send().Complete())
	if _, err := a.qp.PostRecv(verbs.RecvWR{ID: 1}); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*ibv.QPModify){
		"path MTU 0":            func(m *ibv.QPModify) { m.PathMTU = 0 },
		"no address":            func(m *ibv.QPModify) { m.AV = rdma.AH{} },
		"max_dest_rd_atomic 17": func(m *ibv.QPModify) { m.MaxDestRdAtomic = 17 },
		"PSN of 25 bits":        func(m *ibv.QPModify) { m.RQPSN = 1 << 24 },
		"QP number of 25 bits":  func(m *ibv.QPModify) { m.DestQPN = 1 << 24 },
		"RNR timer 32":          func(m *ibv.QPModify) { m.MinRNRTimer = 32 },
	} {
		refuse(what, step(rdma.StateRTR, toRTR, change))
	}
	accept(step(rdma.StateRTR, toRTR, nil), rdma.StateRTR)
	refuse("RTR to SQD", step(rdma.StateSQD, ibv.AttrState, nil))
	refuse("retry count 8", step(rdma.StateRTS, toRTS, func(m *ibv.QPModify) { m.RetryCnt = 8 }))
	refuse("wrong current state", step(rdma.StateRTS, toRTS|ibv.AttrCurState, func(m *ibv.QPModify) { m.CurState = rdma.StateInit }))
	accept(step(rdma.StateRTS, toRTS, nil), rdma.StateRTS)
	accept(step(rdma.StateRTS, ibv.AttrState|ibv.AttrMinRNRTimer, nil), rdma.StateRTS)
	refuse("RTS to INIT", step(rdma.StateInit, toInit, nil))
	accept(step(rdma.StateSQD, ibv.AttrState, nil), rdma.StateSQD)
	accept(step(rdma.StateRTS, ibv.AttrState, nil), rdma.StateRTS)
	if q := engine.QPOf(a.qp).Query(); q.PathMTU != ibv.MTU1024 || q.State != rdma.StateRTS || q.Timeout != 14 {
		t.Errorf("query: %+v", q)
	}
	refuse("ERR with attributes", step(rdma.StateErr, ibv.AttrState|ibv.AttrTimeout, nil))
	accept(step(rdma.StateErr, ibv.AttrState, nil), rdma.StateErr)
	a.completion(1, rdma.OpRecv, rdma.StatusWRFlushErr)
	// In ERR, requests are accepted and flushed.
	a.complete(a.qp.Start().ID(2).Send())
	a.completion(2, 0, rdma.StatusWRFlushErr)
	a.recv(3)
	a.completion(3, 0, rdma.StatusWRFlushErr)
	refuse("ERR to RTS", step(rdma.StateRTS, toRTS, nil))
	accept(step(rdma.StateReset, ibv.AttrState, nil), rdma.StateReset)
	// The QP can be connected again.
	fatal.If(t, a.qp.Connect(a.qp.Endpoint(), nil))
	a.recv(4)
	a.complete(a.qp.Start().Send())
	a.completion(4, rdma.OpRecv, rdma.StatusSuccess)
}

func second[T any](_ T, err error) error { return err }

// TestCloseInUse closes objects that are in use; the errors must name the users.
func TestCloseInUse(t *testing.T) {
	dev := must[*verbs.Device](t)(verbs.Open(loopback(), nil))
	pd := must[*verbs.PD](t)(dev.NewPD())
	cq := must[*verbs.CQ](t)(dev.NewCQ(8))
	mr := must[*verbs.MR](t)(pd.Register(make([]byte, 8), 0))
	key := must[*verbs.MKey](t)(pd.NewMKey(verbs.MKeyAttr{}))
	qp := must[*verbs.QP](t)(pd.NewQP(verbs.QPAttr{SendCQ: cq}))
	for _, c := range []struct {
		close func() error
		want  string
	}{
		{dev.Close, "1 CQ, 1 PD"},
		{pd.Close, fmt.Sprintf("1 MKey, 1 MR, QP %#x", qp.Num())},
		{cq.Close, fmt.Sprintf(": still in use: QP %#x", qp.Num())}, // once, although it serves both directions
	} {
		if err := c.close(); !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want EBUSY with %q", err, c.want)
		}
	}
	var many []*verbs.QP
	for range 6 {
		many = append(many, must[*verbs.QP](t)(pd.NewQP(verbs.QPAttr{SendCQ: cq})))
	}
	if err := cq.Close(); err == nil || strings.Count(err.Error(), "QP 0x") != 4 || !strings.HasSuffix(err.Error(), ", 3 more") {
		t.Errorf("closing a CQ of seven QPs: %v", err)
	}
	for _, q := range many {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := cq.Close(); err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("QP %#x", qp.Num())) {
		t.Errorf("closing a CQ of one QP that is left: %v", err)
	}
	for _, closer := range []func() error{mr.Close, mr.Close, qp.Close, qp.Close, key.Close, pd.Close, cq.Close, cq.Close, dev.Close, dev.Close} {
		if err := closer(); err != nil {
			t.Error(err)
		}
	}
	if _, err := dev.NewPD(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a PD of a closed device: %v", err)
	}
	if _, err := cq.Wait(context.Background(), make([]rdma.WC, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("waiting on a closed CQ: %v", err)
	}
	if _, err := dev.NextEvent(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("waiting for an event of a closed device: %v", err)
	}
}

// TestFlushReasons puts QPs in ERR, and lets them fail, with requests in all stages. Every
// completion says why its request was flushed.
func TestFlushReasons(t *testing.T) {
	for _, how := range []string{"modify", "refused by the peer", "posted in ERR"} {
		t.Run(how, func(t *testing.T) {
			a, _ := pair(t, verbs.QPAttr{MaxInlineData: 8}, nil)
			mr := a.register(64, rdma.LocalWrite)
			toErr := func() { a.modify(rdma.StateErr) }
			if how == "posted in ERR" {
				toErr()
			}
			for id := range uint64(3) {
				a.recv(id, mr.SGE(0, 64))
			}
			c := a.qp.Start()
			if how == "refused by the peer" {
				c.ID(3).Read(1, 1).SGE(mr.SGE(0, 8))
			} else {
				c.ID(3).Send() // stays in flight: the peer has no receive request
			}
			for id := uint64(4); id < 8; id++ {
				c.ID(id).Fence().Send().Inline([]byte{1})
			}
			a.complete(c)
			if how == "modify" {
				toErr()
			}
			// Failed requests are in any order between the two queues.
			for _, wc := range a.completions(8) {
				if wc.Status != rdma.StatusWRFlushErr && (how != "refused by the peer" || wc.ID != 3) {
					t.Errorf("request %d: %v", wc.ID, wc.Status)
				}
				if wc.Status == rdma.StatusWRFlushErr && !errors.Is(wc.Err, syscall.ECANCELED) {
					t.Errorf("request %d: flushed because of %v", wc.ID, wc.Err)
				}
			}
		})
	}
}

// TestUnacknowledgedEvents checks that an object cannot be closed until its event was
// acknowledged.
func TestUnacknowledgedEvents(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	fatal.If(t, a.qp.Connect(a.qp.Endpoint(), nil))
	fatal.If(t, engine.QPOf(a.qp).Modify(ibv.QPModify{State: rdma.StateSQD, SQDAsyncNotify: true}, ibv.AttrState|ibv.AttrSQDAsyncNotify))
	e := must[*verbs.Event](t)(a.dev.NextEvent(context.Background()))
	if err := a.qp.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing before the event is acknowledged: %v", err)
	}
	e.Ack()
	e.Ack()
	if err := a.qp.Close(); err != nil {
		t.Error(err)
	}
}

// TestCQOverrun loses completions; the device must report it.
func TestCQOverrun(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	small := must[*verbs.CQ](t)(a.dev.NewCQ(2))
	qp := must[*verbs.QP](t)(a.pd.NewQP(verbs.QPAttr{SendCQ: small, RecvCQ: a.cq}))
	defer qp.Close()
	fatal.If(t, qp.Connect(qp.Endpoint(), nil))
	for i := range 3 {
		if _, err := qp.PostRecv(verbs.RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
		a.complete(qp.Start().Signaled().Send())
	}
	a.completions(3)
	if e := a.nextEvent(); e.Type != rdma.EventCQErr || e.CQ != small {
		t.Errorf("event %v", e.Type)
	}
	// The QP whose completion was lost is in ERR and accepts no requests.
	if qp.State() != rdma.StateErr {
		t.Errorf("the QP is in %v", qp.State())
	}
}

// TestSolicited arms a CQ for solicited completions only.
func TestSolicited(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	b.recv(1)
	b.recv(2)
	b.cq.Notify(true)
	a.complete(a.qp.Start().ID(1).Signaled().Send())
	a.completion(1, rdma.OpSend, rdma.StatusSuccess)
	select {
	case <-b.cq.C():
		t.Error("a notification of a message that asked for none")
	default:
	}
	a.complete(a.qp.Start().Solicited().Send())
	<-b.cq.C()
	if n := b.cq.Poll(make([]rdma.WC, 4)); n != 2 {
		t.Errorf("%d completions", n)
	}
}

func TestQueries(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	if gids := a.dev.GIDTable(); len(gids) != 1 || gids[0].Addr() != a.dev.Addr() || !strings.HasPrefix(gids[0].String(), "0000:0000:0000:0000:0000:ffff:7f") {
		t.Errorf("GIDs %v", gids)
	}
	caps := a.dev.SignatureCaps()
	if len(caps.Types) != 4 || len(caps.Failed) != 0 || len(caps.BlockSizes) != 5 {
		t.Errorf("signature capabilities: %+v", caps)
	}
	if c := a.dev.CryptoCaps(); !c.AESXTS || c.FailedTests || c.ImportMode != dek.Plaintext {
		t.Errorf("crypto capabilities: %+v", c)
	}
	if at := a.dev.Attr(); at.MaxMR == 0 || at.MaxMessage != 1<<30 {
		t.Errorf("limits: %+v", at)
	}
}

// TestKeyTag checks that requests fail for a key whose keytag does not match that of its
// DEK.
func TestKeyTag(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	raw := make([]byte, 64+dek.KeyTagSize)
	fill(raw, 4)
	d, err := a.dev.Crypto().NewDEK(raw, nil)
	fatal.If(t, err)
	mr, key := a.register(512, rdma.LocalWrite), a.mkey(mkey.CryptoOffload)
	dst := b.register(512, rdma.LocalWrite|rdma.RemoteWrite)
	c := mkey.Crypto{EncryptOnTX: true, DataUnitSize: 512, DEK: d}
	copy(c.KeyTag[:], raw[64:])
	a.configure(key, mr, func(ch verbs.Chain) { ch.Crypto(c) })
	a.complete(a.qp.Start().ID(1).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 512)))
	a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
	c.KeyTag[0] ^= 1
	a.configure(key, mr, func(ch verbs.Chain) { ch.Crypto(c) })
	a.complete(a.qp.Start().ID(2).Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 512)))
	a.completion(2, 0, rdma.StatusLocProtErr)
}

// TestCryptoNotConfigured checks that a key created for crypto cannot be used without
// crypto attributes.
func TestCryptoNotConfigured(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	b.recv(1)
	mr, key := a.register(512, 0), a.mkey(mkey.CryptoOffload|mkey.BlockSignature)
	f := sig.Format{Type: sig.CRC32C, BlockSize: 512}
	a.configure(key, mr, func(c verbs.Chain) { c.Signature(signature(nil, &f)) })
	a.complete(a.qp.Start().ID(2).Send().SGE(key.SGE(0, 516)))
	a.completion(2, 0, rdma.StatusLocProtErr)
	b.noCompletion()
}

// TestActiveMTU checks that the port reports the MTU of the network and that connections
// use it. An Ethernet MTU of 1500 gives 1024, as with adapters.
func TestActiveMTU(t *testing.T) {
	for mtu, want := range map[int]ibv.MTU{1500: ibv.MTU1024, 9000: ibv.MTU4096, 4192: ibv.MTU4096, 4191: ibv.MTU2048, 576: ibv.MTU256} {
		network := inproc.NewNetwork(&inproc.Options{MTU: mtu})
		conn, err := network.Listen(netip.MustParseAddrPort("10.0.0.1:4791"))
		fatal.If(t, err)
		dev, err := verbs.Open(conn.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: conn})
		fatal.If(t, err)
		defer dev.Close()
		if got := dev.PortAttr().ActiveMTU; got != want.Bytes() {
			t.Errorf("interface with %d bytes: active MTU %v, want %v", mtu, got, want)
		}
	}
}

// The first request that reaches a QP in RTR raises one event. In RTS none is raised.
func TestEstablished(t *testing.T) {
	a, b := openSide(t, verbs.QPAttr{}), openSide(t, verbs.QPAttr{})
	here, there := a.qp.Endpoint(), b.qp.Endpoint()
	m := ibv.QPModify{State: rdma.StateInit, Port: 1, AccessFlags: rdma.LocalWrite}
	fatal.If(t, engine.QPOf(b.qp).Modify(m, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags))
	m = ibv.QPModify{State: rdma.StateRTR, AV: rdma.AH{DGID: rdma.GIDOf(here.GID), UDPPort: here.UDPPort}, PathMTU: 3, DestQPN: here.QPN, RQPSN: here.PSN, MaxDestRdAtomic: 1, MinRNRTimer: 1}
	fatal.If(t, engine.QPOf(b.qp).Modify(m, ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN|ibv.AttrMaxDestRdAtomic|ibv.AttrMinRNRTimer))
	fatal.If(t, a.qp.Connect(there, &verbs.ConnectOptions{MTU: 1024}))
	b.recv(1)
	b.recv(2)
	for range 2 {
		a.complete(a.qp.Start().ID(5).Signaled().Send())
		a.completion(5, rdma.OpSend, rdma.StatusSuccess)
	}
	b.event(rdma.EventCommEst)
	none, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := b.dev.NextEvent(none); err == nil {
		t.Errorf("a second event: %+v", e)
	}
}
