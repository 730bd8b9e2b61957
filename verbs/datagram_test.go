package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// TestDatagrams sends datagrams between two UD QPs, and to QPs that must drop them.
func TestDatagrams(t *testing.T) {
	const qkey = 0x1234
	attr := verbs.QPAttr{Type: rdma.UD}
	a, b := openSide(t, attr), openSide(t, attr)
	for _, s := range []*side{a, b} {
		fatal.If(t, s.qp.Bind(qkey))
	}
	ah := must[*verbs.AddressHandle](t)(a.pd.NewAddressHandle(rdma.AH{DGID: rdma.GIDOf(b.dev.Addr())}))
	dst := b.register(verbs.GRHLen+64, rdma.LocalWrite)
	b.recv(1, dst.SGE(0, dst.Len()))
	a.complete(a.qp.Start().ID(1).Send().Inline([]byte("wrong key")).To(ah, b.qp.Num(), qkey+1).
		ID(2).Signaled().SendImm(7).Inline([]byte("a datagram")).To(ah, b.qp.Num(), 1<<31)) // selects the QP's own Q_Key
	a.completion(2, rdma.OpSend, rdma.StatusSuccess)
	wc := b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
	if wc.Flags != rdma.WithGRH|rdma.WithImm || wc.Imm != 7 || wc.SrcQP != a.qp.Num() || wc.ByteLen != verbs.GRHLen+10 {
		t.Errorf("completion %+v", wc)
	}
	if got := string(dst.Bytes()[verbs.GRHLen:][:10]); got != "a datagram" {
		t.Errorf("received %q", got)
	}
	for name, c := range map[string]verbs.Chain{
		"no handle":      a.qp.Start().Send().To(nil, 2, 0),
		"QP number":      a.qp.Start().Send().To(ah, 1<<24, 0),
		"another PD":     b.qp.Start().Send().To(ah, 2, 0),
		"no destination": a.qp.Start().Send(),
	} {
		if err := c.Complete(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.qp.Connect(b.qp.Endpoint(), nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("connecting a UD QP: %v", err)
	}
}

// TestUnreliableConnection sends and writes on a UC QP.
func TestUnreliableConnection(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{Type: rdma.UC}, nil)
	src, dst := a.register(10_000, 0), b.register(10_000, rdma.LocalWrite|rdma.RemoteWrite)
	fill(src.Bytes(), 3)
	b.recv(1)
	a.complete(a.qp.Start().Signaled().WriteImm(dst.RKey(), dst.Addr(), 5).SGE(src.SGE(0, src.Len())))
	b.completion(1, rdma.OpRecvRDMAWithImm, rdma.StatusSuccess)
	if string(dst.Bytes()) != string(src.Bytes()) {
		t.Error("the data differs")
	}
	a.complete(a.qp.Start().ID(9).Read(dst.RKey(), dst.Addr()))
	a.completions(1) // completion of the WRITE
	wc := a.completion(9, rdma.OpRDMARead, rdma.StatusLocQPOpErr)
	if wc.Err == nil {
		t.Error("no reason")
	}
}

// TestSendQueueError fails a request of a QP without acknowledgements. Only its send queue stops: requests are flushed, the
// QP receives, and it sends again after SQE to RTS (ibv_modify_qp(3); IBTA volume 1, section 10.3.1).
func TestSendQueueError(t *testing.T) {
	for _, typ := range []rdma.QPType{rdma.UD, rdma.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			attr := verbs.QPAttr{Type: typ}
			a, b := openSide(t, attr), openSide(t, attr)
			to := func(s, other *side) func(c verbs.Chain) verbs.Chain {
				return func(c verbs.Chain) verbs.Chain { return c }
			}
			if typ == rdma.UC {
				connectQPs(t, a.qp, b.qp, nil)
			} else {
				for _, s := range []*side{a, b} {
					fatal.If(t, s.qp.Bind(5))
				}
				to = func(s, other *side) func(c verbs.Chain) verbs.Chain {
					ah := must[*verbs.AddressHandle](t)(s.pd.NewAddressHandle(rdma.AH{DGID: rdma.GIDOf(other.dev.Addr())}))
					return func(c verbs.Chain) verbs.Chain { return c.To(ah, other.qp.Num(), 5) }
				}
			}
			there, back := to(a, b), to(b, a)
			in := a.register(200, rdma.LocalWrite)
			a.recv(1, in.SGE(0, 200))
			a.complete(there(a.qp.Start().ID(2).Signaled().Send().SGE(rdma.SGE{Addr: 1, Length: 8, LKey: 0x77})))
			a.completion(2, rdma.OpSend, rdma.StatusLocProtErr)
			if st := a.qp.State(); st != rdma.StateSQE {
				t.Fatalf("the QP is in %v, want SQE", st)
			}
			a.complete(there(a.qp.Start().ID(3).Signaled().Send().Inline([]byte("flushed"))))
			a.completion(3, rdma.OpSend, rdma.StatusWRFlushErr)
			b.complete(back(b.qp.Start().ID(4).Signaled().Send().Inline([]byte("received"))))
			b.completion(4, rdma.OpSend, rdma.StatusSuccess)
			a.completion(1, rdma.OpRecv, rdma.StatusSuccess)
			a.modify(rdma.StateRTS)
			out := b.register(200, rdma.LocalWrite)
			b.recv(5, out.SGE(0, 200))
			a.complete(there(a.qp.Start().ID(6).Signaled().Send().Inline([]byte("sent again"))))
			a.completion(6, rdma.OpSend, rdma.StatusSuccess)
			b.completion(5, rdma.OpRecv, rdma.StatusSuccess)
		})
	}
}
