package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// The protocol of Debian's udaddy: the client sends datagrams with its QP number as
// immediate data, and the server sends as many back.
const (
	udaddyPort  = 7174
	udaddySize  = 100
	udaddyCount = 5
)

// udaddyEnd is a UD QP with receive requests for all datagrams.
type udaddyEnd struct {
	t  *testing.T
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
}

func newUdaddyEnd(t *testing.T, dev *verbs.Device) *udaddyEnd {
	t.Helper()
	e := &udaddyEnd{t: t}
	e.pd, e.cq, e.qp = newQP(t, dev, verbs.QPAttr{Type: rdma.UD})
	var err error
	e.mr, err = e.pd.Register(make([]byte, udaddyCount*(verbs.GRHLen+udaddySize)), rdma.LocalWrite)
	check(t, err)
	check(t, e.qp.Bind(cm.DefaultQKey))
	closeLater(t, e.qp, e.mr, e.cq, e.pd)
	for i := range udaddyCount {
		if _, err := e.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{e.mr.SGE(i*(verbs.GRHLen+udaddySize), verbs.GRHLen+udaddySize)}}); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// take waits for all posted sends and all datagrams, and returns the sender and the
// immediate data of the last datagram.
func (e *udaddyEnd) take(ctx context.Context, sends, datagrams int) (from, imm uint32) {
	e.t.Helper()
	for sends+datagrams > 0 {
		var wc [1]rdma.WC
		if _, err := e.cq.Wait(ctx, wc[:]); err != nil {
			e.t.Fatalf("%d sends and %d datagrams are missing: %v", sends, datagrams, err)
		}
		switch {
		case wc[0].Status != rdma.StatusSuccess:
			e.t.Fatalf("completion %+v", wc[0])
		case wc[0].Opcode == rdma.OpSend:
			sends--
		default:
			if wc[0].ByteLen != verbs.GRHLen+udaddySize || wc[0].Flags&rdma.WithImm == 0 {
				e.t.Errorf("completion %+v", wc[0])
			}
			datagrams--
			from, imm = wc[0].SrcQP, wc[0].Imm
		}
	}
	return from, imm
}

func (e *udaddyEnd) send(ah rdma.AH, qpn, qkey uint32) {
	e.t.Helper()
	to, err := e.pd.NewAddressHandle(ah)
	check(e.t, err)
	for range udaddyCount {
		wr := e.qp.Start()
		wr.Signaled().SendImm(e.qp.Num()).To(to, qpn, qkey).SGE(e.mr.SGE(0, udaddySize))
		check(e.t, wr.Complete())
	}
}

// TestUdaddy runs udaddy's client against our server, and its server against our client.
func TestUdaddy(t *testing.T) {
	n := newNetwork(t)
	g := n.r.Guests[0]
	families(t, func(t *testing.T, v6 bool) {
		guest, device := n.host(v6)
		dev := n.device(v6)
		t.Run("server", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			l, err := cm.ListenDatagram(dev, udaddyPort, nil)
			check(t, err)
			defer l.Close()
			client := guestProgram(ctx, g, fmt.Sprintf("udaddy -C %d -S %d -s %s", udaddyCount, udaddySize, device))
			q, err := l.Accept(context.Background())
			check(t, err)
			e := newUdaddyEnd(t, dev)
			check(t, q.Reply(e.qp.Num(), cm.DefaultQKey, nil))
			from, imm := e.take(ctx, 0, udaddyCount)
			if from != imm {
				t.Errorf("datagrams of QP %#x say that they are of %#x", from, imm)
			}
			grh := e.mr.Bytes()[:verbs.GRHLen]
			if want := guest.As16(); v6 && netip.AddrFrom16([16]byte(grh[8:24])) != guest || !v6 && binary.BigEndian.Uint32(grh[32:]) != binary.BigEndian.Uint32(want[12:]) {
				t.Errorf("GRH % x, from %v", grh, guest)
			}
			e.send(rdma.AH{DGID: rdma.GIDOf(guest)}, from, cm.DefaultQKey)
			e.take(ctx, udaddyCount, 0)
			if err := <-client; err != nil {
				t.Error(err)
			}
		})
		t.Run("client", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			server := guestServer(ctx, t, g, 0, fmt.Sprintf("udaddy -C %d -S %d -b %s", udaddyCount, udaddySize, guest))
			e := newUdaddyEnd(t, dev)
			d, err := cm.Resolve(ctx, dev, netip.AddrPortFrom(guest, udaddyPort), nil)
			check(t, err)
			e.send(d.AH(), d.QPN, d.QKey)
			e.take(ctx, udaddyCount, udaddyCount)
			if err := <-server; err != nil {
				t.Error(err)
			}
		})
	})
}
