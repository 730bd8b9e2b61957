package verbs_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// TestMulticast sends datagrams to a group that QPs of two devices on loopback are in.
func TestMulticast(t *testing.T) {
	const qkey = 0x1234
	attr := verbs.QPAttr{Type: rdma.UD}
	a, b := openSide(t, attr), openSide(t, attr)
	group := rdma.GIDOf(netip.MustParseAddr("239.77.1.2"))
	for _, s := range []*side{a, b} {
		fatal.If(t, s.qp.Bind(qkey))
		for range 2 { // the second call does nothing
			fatal.If(t, s.qp.AttachMulticast(group))
		}
	}
	ah := must[*verbs.AddressHandle](t)(a.pd.NewAddressHandle(rdma.AH{DGID: group}))
	send := func(text string) {
		a.complete(a.qp.Start().ID(2).Signaled().Send().Inline([]byte(text)).To(ah, rdma.MulticastQPN, qkey))
		a.completion(2, rdma.OpSend, rdma.StatusSuccess)
	}
	expect := func(s *side, mr *verbs.MR, text string) {
		t.Helper()
		wc := s.completion(1, rdma.OpRecv, rdma.StatusSuccess)
		if wc.Flags != rdma.WithGRH || wc.SrcQP != a.qp.Num() || wc.ByteLen != uint32(verbs.GRHLen+len(text)) {
			t.Errorf("completion %+v", wc)
		}
		if got := string(mr.Bytes()[verbs.GRHLen:][:len(text)]); got != text {
			t.Errorf("received %q, want %q", got, text)
		}
		// The IPv4 header is at the end of the 40 bytes for the GRH: its last 8
		// bytes are the source and the group.
		if got := netip.AddrFrom4([4]byte(mr.Bytes()[36:40])); got != group.Addr() {
			t.Errorf("destination %v in the network header, want %v", got, group.Addr())
		}
	}
	memory := map[*side]*verbs.MR{}
	for _, s := range []*side{a, b} {
		memory[s] = s.register(verbs.GRHLen+64, rdma.LocalWrite)
		s.recv(1, memory[s].SGE(0, memory[s].Len()))
	}
	// The QP that sends is a member: it waits for its own datagram before it
	// sends the next one.
	a.complete(a.qp.Start().ID(3).Send().Inline([]byte("to everybody")).To(ah, rdma.MulticastQPN, qkey))
	expect(a, memory[a], "to everybody")
	expect(b, memory[b], "to everybody")
	fatal.If(t, a.qp.DetachMulticast(group))
	b.recv(1, memory[b].SGE(0, memory[b].Len()))
	send("without the sender")
	expect(b, memory[b], "without the sender")

	if err := a.qp.DetachMulticast(group); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("detaching twice: %v", err)
	}
	for name, addr := range map[string]string{"a host's address": "127.0.0.1", "another family": "ff12::7"} {
		if err := a.qp.AttachMulticast(rdma.GIDOf(netip.MustParseAddr(addr))); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rc := openSide(t, verbs.QPAttr{})
	if err := rc.qp.AttachMulticast(group); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an RC QP: %v", err)
	}
	conn, _ := inproc.Pair(nil)
	inside := openSideOn(t, conn.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: conn}, attr)
	if err := inside.qp.AttachMulticast(group); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a network without multicast: %v", err)
	}
}
