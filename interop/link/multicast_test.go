package link

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// TestMulticast sends a datagram from one host to a group whose member is on the other.
func TestMulticast(t *testing.T) {
	for _, c := range []struct{ name, a, b, group string }{
		{"IPv4", "10.92.0.1", "10.92.0.2", "239.77.1.3"},
		{"IPv6", "fd92::1", "fd92::2", "ff15::77"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newLink(t, netem.Link{Delay: time.Millisecond})
			t.Cleanup(func() {
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			})
			acrossLink(t, k, [2]string{c.a, c.b}, c.group)
		})
	}
}

func acrossLink(t *testing.T, k *Link, addrs [2]string, to string) {
	const qkey = 5
	group := rdma.GIDOf(netip.MustParseAddr(to))
	var pds [2]*verbs.PD
	var cqs [2]*verbs.CQ
	var qps [2]*verbs.QP
	for i, h := range []*Host{k.A, k.B} {
		addr := netip.MustParseAddr(addrs[i])
		err := h.do(func() error { // sockets belong to the namespace in which they are opened
			if addr.Is6() {
				if text, err := exec.Command("ip", "addr", "add", addrs[i]+"/64", "dev", device, "nodad").CombinedOutput(); err != nil {
					return fmt.Errorf("ip addr add: %w: %s", err, text)
				}
			}
			dev, err := verbs.Open(addr, nil)
			if err != nil {
				return err
			}
			t.Cleanup(func() { dev.Close() })
			if pds[i], err = dev.NewPD(); err != nil {
				return err
			}
			if cqs[i], err = dev.NewCQ(16); err != nil {
				return err
			}
			if qps[i], err = pds[i].NewQP(verbs.QPAttr{Type: rdma.UD, SendCQ: cqs[i], MaxInlineData: 64}); err != nil {
				return err
			}
			return qps[i].Bind(qkey)
		})
		check(t, err)
	}
	check(t, k.B.do(func() error { return qps[1].AttachMulticast(group) }))
	mr, err := pds[1].Register(make([]byte, verbs.GRHLen+64), rdma.LocalWrite)
	check(t, err)
	if _, err := qps[1].PostRecv(verbs.RecvWR{ID: 1, SGEs: []rdma.SGE{mr.SGE(0, mr.Len())}}); err != nil {
		t.Fatal(err)
	}
	ah, err := pds[0].NewAddressHandle(rdma.AH{DGID: group})
	check(t, err)
	check(t, qps[0].Start().Send().Inline([]byte("across")).To(ah, rdma.MulticastQPN, qkey).Complete())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wcs [1]rdma.WC
	if _, err := cqs[1].Wait(ctx, wcs[:]); err != nil || wcs[0].Status != rdma.StatusSuccess {
		t.Fatalf("%v, completion %+v", err, wcs[0])
	}
	if got := string(mr.Bytes()[verbs.GRHLen:][:6]); got != "across" {
		t.Errorf("received %q", got)
	}
}
