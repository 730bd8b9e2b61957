package verbs_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// TestPayload counts the packets of a message on a network with the MTU of Ethernet.
func TestPayload(t *testing.T) {
	const n = 10 * 1408
	for _, test := range []struct {
		name    string
		peer    func(verbs.Endpoint) verbs.Endpoint
		packets uint64
	}{
		{"agreed", func(e verbs.Endpoint) verbs.Endpoint { return e }, 10},
		{"path MTU", verbs.Endpoint.Standard, 14},
		{"standard peer", func(e verbs.Endpoint) verbs.Endpoint { e.Caps = 0; return e }, 14},
	} {
		t.Run(test.name, func(t *testing.T) {
			network := inproc.NewNetwork(&inproc.Options{MTU: 1500})
			var sides [2]*side
			for i, addr := range []string{"10.0.0.1:4791", "10.0.0.2:4791"} {
				conn, err := network.Listen(netip.MustParseAddrPort(addr))
				if err != nil {
					t.Fatal(err)
				}
				sides[i] = openSideOn(t, conn.LocalAddr().Addr(), &verbs.Options{Conn: conn}, verbs.QPAttr{})
			}
			a, b := sides[0], sides[1]
			for i, s := range sides {
				if err := s.qp.Connect(test.peer(sides[1-i].qp.Endpoint()), nil); err != nil {
					t.Fatal(err)
				}
				if m := s.qp.Query().PathMTU; m != verbs.MTU1024 {
					t.Errorf("path MTU %v", m)
				}
			}
			from, to := a.register(n, verbs.LocalWrite), b.register(n, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
			fill(from.Bytes(), 1)
			a.complete(a.qp.Start().ID(1).Signaled().Write(to.RKey(), to.Addr()).SGE(from.SGE(0, n)))
			a.completion(1, verbs.OpRDMAWrite, verbs.StatusSuccess)
			// On a busy machine an answer may be so late that a packet is sent again.
			c := a.dev.Transport().Counters()
			if got := c.SentPackets - c.Retransmitted; got != test.packets {
				t.Errorf("a WRITE of %d bytes took %d packets, want %d", n, got, test.packets)
			}
			sent := bytes.Clone(from.Bytes())
			clear(from.Bytes())
			a.complete(a.qp.Start().ID(2).Signaled().Read(to.RKey(), to.Addr()).SGE(from.SGE(0, n)))
			a.completion(2, verbs.OpRDMARead, verbs.StatusSuccess)
			if !bytes.Equal(from.Bytes(), sent) {
				t.Error("the READ returned other bytes than the WRITE wrote")
			}
		})
	}
}
