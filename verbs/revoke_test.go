package verbs_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// valve is a network that lets a number of packets of some kinds pass and then holds them
// back until it is opened.
type valve struct {
	network *netem.Network
	reached chan struct{} // closed when the first packet is held back

	mu   sync.Mutex
	ops  []wire.Opcode
	pass int
	isOn bool
}

func newValve() *valve {
	v := &valve{reached: make(chan struct{})}
	v.network = netem.NewNetwork(1, netem.Faults{}, &netem.Options{Filter: v.filter})
	return v
}

func (v *valve) filter(_ uint64, _ netip.AddrPort, p []byte) netem.Action {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.isOn || len(p) == 0 || !slices.Contains(v.ops, wire.Opcode(p[0])) {
		return netem.Pass
	}
	if v.pass > 0 {
		v.pass--
		return netem.Pass
	}
	select {
	case <-v.reached:
	default:
		close(v.reached)
	}
	return netem.Lose
}

// shut lets the given number of packets of the kinds pass and holds back the following
// ones.
func (v *valve) shut(pass int, ops ...wire.Opcode) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ops, v.pass, v.isOn = ops, pass, true
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isOn = false
}

// pair returns two sides on the valve's network, connected by two pairs of QPs.
func (v *valve) pair(t *testing.T, attr verbs.QPAttr) (a, b *side, a2, b2 *verbs.QP) {
	t.Helper()
	attr.MaxInlineData = 512
	sides := make([]*side, 2)
	for i, addr := range []string{"2001:db8::1", "2001:db8::2"} {
		ip := netip.MustParseAddr(addr)
		conn := must[*netem.Conn](t)(v.network.Listen(netip.AddrPortFrom(ip, 4791)))
		sides[i] = openSideOn(t, ip, &verbs.DeviceOptions{Conn: conn}, attr)
	}
	a, b = sides[0], sides[1]
	attr2 := func(s *side) verbs.QPAttr { return verbs.QPAttr{SendCQ: s.cq, MaxInlineData: 512} }
	a2 = must[*verbs.QP](t)(a.pd.NewQP(attr2(a)))
	b2 = must[*verbs.QP](t)(b.pd.NewQP(attr2(b)))
	t.Cleanup(func() { a2.Close(); b2.Close() })
	connectQPs(t, a.qp, b.qp, nil)
	connectQPs(t, a2, b2, nil)
	return a, b, a2, b2
}

const revokedBlocks = 2048

// revoked is a transfer through a key of side a that is taken away meanwhile.
// The key covers all of mr.
type revoked struct {
	a, b   *side
	a2, b2 *verbs.QP
	valve  *valve
	mr     *verbs.MR
	key    *verbs.MKey
	peer   *verbs.MR // of the peer, as long as the key's wire domain
	early  *rdma.WC  // completion of the transfer, if it ended before the key was taken away
}

func newRevoked(t *testing.T, kind string) *revoked {
	r := &revoked{valve: newValve()}
	r.a, r.b, r.a2, r.b2 = r.valve.pair(t, verbs.QPAttr{})
	r.mr = r.a.register(revokedBlocks*512, rdma.LocalWrite)
	n := r.mr.Len()
	flags := mkey.RemoteInvalidate
	var more func(verbs.Chain)
	switch kind {
	case "signature":
		n = revokedBlocks * 520
		flags |= mkey.BlockSignature
		s := signature(nil, &dif)
		s.CheckMask = new(sig.Mask)
		more = func(c verbs.Chain) { c.Signature(s) }
	case "crypto":
		flags |= mkey.CryptoOffload
		more = func(c verbs.Chain) { c.Crypto(cryptoOf(t, r.a, 512, true)) }
	}
	r.key = r.a.mkey(flags)
	r.a.configure(r.key, r.mr, more)
	r.peer = r.b.register(n, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	return r
}

func (r *revoked) sge() rdma.SGE { return r.key.SGE(0, r.peer.Len()) }

// waitFor waits until request id of a has succeeded.
func (r *revoked) waitFor(t *testing.T, id uint64) {
	t.Helper()
	wc := r.a.completions(1)[0]
	if wc.ID == 1 {
		// A packet that passed the valve may fail on the freed key before the
		// request that frees it completes.
		early := wc
		r.early = &early
		wc = r.a.completions(1)[0]
	}
	if wc.ID != id || wc.Status != rdma.StatusSuccess {
		t.Fatalf("completion %+v (%v), want success of request %d", wc, wc.Status, id)
	}
}

// mustFail checks the completion of the transfer.
func (r *revoked) mustFail(t *testing.T) {
	t.Helper()
	wc := r.early
	if wc == nil {
		wc = &r.a.completions(1)[0]
	}
	if wc.ID != 1 || wc.Status != rdma.StatusLocProtErr {
		t.Fatalf("completion %+v (%v), want a local protection error of request 1", wc, wc.Status)
	}
	if wc.Err == nil || !strings.Contains(wc.Err.Error(), "key 0x") {
		t.Errorf("the reason is %v", wc.Err)
	}
}

// revocations are the ways to take the key away. Each returns when no request
// can use the key any more.
var revocations = []struct {
	name   string
	revoke func(t *testing.T, r *revoked)
}{
	{"close", func(t *testing.T, r *revoked) {
		if err := r.key.Close(); err != nil {
			t.Fatal(err)
		}
	}},
	{"LOCAL_INV on another QP", func(t *testing.T, r *revoked) {
		r.a.complete(r.a2.Start().ID(77).Signaled().LocalInv(r.key.LKey()))
		r.waitFor(t, 77)
	}},
	{"SEND with invalidate", func(t *testing.T, r *revoked) {
		if _, err := r.a2.PostRecv(verbs.RecvWR{ID: 78}); err != nil {
			t.Fatal(err)
		}
		r.a.complete(r.b2.Start().SendInv(r.key.RKey()))
		r.waitFor(t, 78)
	}},
}

// TestRevokedLocally frees a key while a transfer of its owner is in flight. After that
// the memory belongs to the program: bytes that it writes there must not be sent, and
// received bytes must not change it. The transfer must end with a local protection error
// whose reason names the key.
func TestRevokedLocally(t *testing.T) {
	for k, kind := range []string{"plain", "signature", "crypto"} {
		for i, tr := range []struct {
			name  string
			reads bool // the transfer reads the key's memory
			hold  []wire.Opcode
			post  func(r *revoked)
		}{
			{"WRITE", true, []wire.Opcode{wire.WriteMiddle, wire.WriteLast}, func(r *revoked) {
				r.a.complete(r.a.qp.Start().ID(1).Signaled().Write(r.peer.RKey(), r.peer.Addr()).SGE(r.sge()))
			}},
			{"SEND", true, []wire.Opcode{wire.SendMiddle, wire.SendLast}, func(r *revoked) {
				r.b.recv(2, r.peer.SGE(0, r.peer.Len()))
				r.a.complete(r.a.qp.Start().ID(1).Signaled().Send().SGE(r.sge()))
			}},
			{"READ", false, []wire.Opcode{wire.ReadResponseFirst, wire.ReadResponseMiddle, wire.ReadResponseLast, wire.ReadResponseOnly}, func(r *revoked) {
				r.a.complete(r.a.qp.Start().ID(1).Signaled().Read(r.peer.RKey(), r.peer.Addr()).SGE(r.sge()))
			}},
			{"RECV", false, []wire.Opcode{wire.SendMiddle, wire.SendLast}, func(r *revoked) {
				r.a.recv(1, r.sge())
				r.b.complete(r.b.qp.Start().ID(2).Send().SGE(r.peer.SGE(0, r.peer.Len())))
			}},
		} {
			for j, rev := range revocations {
				if testing.Short() && (i+j+k)%len(revocations) != 0 {
					continue // each kind and each transfer meets each revocation still, but not all three together
				}
				t.Run(kind+"/"+tr.name+"/"+rev.name, func(t *testing.T) {
					r := newRevoked(t, kind)
					fill(r.mr.Bytes(), 1)
					fill(r.peer.Bytes(), 2)
					r.valve.shut(60, tr.hold...)
					tr.post(r)
					<-r.valve.reached
					rev.revoke(t, r)
					mine := bytes.Repeat([]byte{0xEE}, r.mr.Len())
					copy(r.mr.Bytes(), mine)
					r.valve.open()
					r.mustFail(t)
					if !tr.reads && !bytes.Equal(r.mr.Bytes(), mine) {
						t.Error("memory was written after the key was freed")
					}
					// Blocks that were read after the key was freed contain the
					// program's new bytes, unless they are encrypted.
					r.b.qp.Close()
					if tr.reads && bytes.Contains(r.peer.Bytes(), mine[:512]) {
						t.Error("memory was read after the key was freed")
					}
				})
			}
		}
	}
}

// TestRevokedAtomic frees the key of the memory for an atomic's old value.
func TestRevokedAtomic(t *testing.T) {
	for _, rev := range revocations {
		t.Run(rev.name, func(t *testing.T) {
			r := newRevoked(t, "plain")
			word := r.b.register(8, rdma.LocalWrite|rdma.RemoteAtomic)
			copy(r.mr.Bytes(), "12345678")
			r.valve.shut(0, wire.AtomicAcknowledge)
			r.a.complete(r.a.qp.Start().ID(1).Signaled().FetchAdd(word.RKey(), word.Addr(), 1).SGE(r.key.SGE(0, 8)))
			<-r.valve.reached
			rev.revoke(t, r)
			r.valve.open()
			r.mustFail(t)
			if got := string(r.mr.Bytes()[:8]); got != "12345678" {
				t.Errorf("memory was written after the key was freed: %q", got)
			}
		})
	}
}

// TestRevokedOnSameQP checks that LOCAL_INV without a fence takes effect while an earlier
// READ is in flight, and that with a fence it waits for the READ.
func TestRevokedOnSameQP(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		r := newRevoked(t, "plain")
		fill(r.peer.Bytes(), 2)
		r.valve.shut(10, wire.ReadResponseFirst, wire.ReadResponseMiddle, wire.ReadResponseLast, wire.ReadResponseOnly)
		c := r.a.qp.Start().ID(1).Signaled().Read(r.peer.RKey(), r.peer.Addr()).SGE(r.sge())
		c.ID(2).Signaled()
		if fenced {
			c.Fence()
		}
		r.a.complete(c.LocalInv(r.key.LKey()))
		<-r.valve.reached
		r.valve.open()
		if fenced {
			r.a.completion(1, rdma.OpRDMARead, rdma.StatusSuccess)
			r.a.completion(2, rdma.OpLocalInv, rdma.StatusSuccess)
			if !bytes.Equal(r.mr.Bytes(), r.peer.Bytes()) {
				t.Error("the READ is incomplete")
			}
			continue
		}
		wc := r.a.completion(1, 0, rdma.StatusLocProtErr)
		if wc.Err == nil || !strings.Contains(wc.Err.Error(), "is free since LOCAL_INV of request 2") {
			t.Errorf("the reason is %v", wc.Err)
		}
		wc = r.a.completion(2, 0, rdma.StatusWRFlushErr)
		if wc.Err == nil || !strings.Contains(wc.Err.Error(), "request 1 on QP") {
			t.Errorf("the reason of the flushed request is %v", wc.Err)
		}
	}
}

// TestConfiguredInFlight checks that a transfer ends under the configuration with which
// it began, even if the key is configured again in the meantime.
func TestConfiguredInFlight(t *testing.T) {
	r := newRevoked(t, "plain")
	fill(r.peer.Bytes(), 2)
	other := r.a.register(512, rdma.LocalWrite)
	r.valve.shut(60, wire.ReadResponseFirst, wire.ReadResponseMiddle, wire.ReadResponseLast, wire.ReadResponseOnly)
	r.a.complete(r.a.qp.Start().ID(1).Signaled().Read(r.peer.RKey(), r.peer.Addr()).SGE(r.sge()))
	<-r.valve.reached
	r.a.complete(r.a2.Start().ID(2).Signaled().Configure(r.key).List(other.SGE(0, 512)))
	r.waitFor(t, 2)
	r.valve.open()
	r.a.completion(1, rdma.OpRDMARead, rdma.StatusSuccess)
	if !bytes.Equal(r.mr.Bytes(), r.peer.Bytes()) {
		t.Error("the READ did not end under its configuration")
	}
}
