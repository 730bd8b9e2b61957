package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/verbs"
)

// TestDatagrams sends datagrams between two UD QPs, and to QPs that must drop them.
func TestDatagrams(t *testing.T) {
	const qkey = 0x1234
	attr := verbs.QPAttr{Type: verbs.UD, MaxInlineData: 64}
	a, b := openSide(t, attr), openSide(t, attr)
	for _, s := range []*side{a, b} {
		if err := s.qp.Bind(qkey); err != nil {
			t.Fatal(err)
		}
	}
	ah := must[*verbs.AddressHandle](t)(a.pd.NewAddressHandle(verbs.AH{DGID: verbs.GIDOf(b.dev.Addr())}))
	dst := b.register(verbs.GRHLen+64, verbs.LocalWrite)
	b.recv(1, dst.SGE(0, dst.Len()))
	a.complete(a.qp.Start().ID(1).Send().Inline([]byte("wrong key")).To(ah, b.qp.Num(), qkey+1).
		ID(2).Signaled().SendImm(7).Inline([]byte("a datagram")).To(ah, b.qp.Num(), 1<<31)) // selects the QP's own Q_Key
	a.completion(2, verbs.OpSend, verbs.StatusSuccess)
	wc := b.completion(1, verbs.OpRecv, verbs.StatusSuccess)
	if wc.Flags != verbs.WithGRH|verbs.WithImm || wc.Imm != 7 || wc.SrcQP != a.qp.Num() || wc.ByteLen != verbs.GRHLen+10 {
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
	a, b := pair(t, verbs.QPAttr{Type: verbs.UC}, nil)
	src, dst := a.register(10_000, 0), b.register(10_000, verbs.LocalWrite|verbs.RemoteWrite)
	fill(src.Bytes(), 3)
	b.recv(1)
	a.complete(a.qp.Start().Signaled().WriteImm(dst.RKey(), dst.Addr(), 5).SGE(src.SGE(0, src.Len())))
	b.completion(1, verbs.OpRecvRDMAWithImm, verbs.StatusSuccess)
	if string(dst.Bytes()) != string(src.Bytes()) {
		t.Error("the data differs")
	}
	a.complete(a.qp.Start().ID(9).Read(dst.RKey(), dst.Addr()))
	a.completions(1) // completion of the WRITE
	wc := a.completion(9, verbs.OpRDMARead, verbs.StatusLocQPOpErr)
	if wc.Err == nil {
		t.Error("no reason")
	}
}
