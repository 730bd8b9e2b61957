package verbs_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/rdma"
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
			a, b := inprocSides(t, &inproc.Options{MTU: 1500}, verbs.Options{})
			for _, ends := range [][2]*side{{a, b}, {b, a}} {
				s, peer := ends[0], ends[1]
				if err := s.qp.Connect(test.peer(peer.qp.Endpoint()), nil); err != nil {
					t.Fatal(err)
				}
				if m := s.qp.Query().PathMTU; m != rdma.MTU1024 {
					t.Errorf("path MTU %v", m)
				}
			}
			from, to := a.register(n, rdma.LocalWrite), b.register(n, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
			fill(from.Bytes(), 1)
			a.complete(a.qp.Start().ID(1).Signaled().Write(to.RKey(), to.Addr()).SGE(from.SGE(0, n)))
			a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
			// On a busy machine an answer may be so late that a packet is sent again.
			c := a.dev.Transport().Counters()
			if got := c.SentPackets - c.Retransmitted; got != test.packets {
				t.Errorf("a WRITE of %d bytes took %d packets, want %d", n, got, test.packets)
			}
			sent := bytes.Clone(from.Bytes())
			clear(from.Bytes())
			a.complete(a.qp.Start().ID(2).Signaled().Read(to.RKey(), to.Addr()).SGE(from.SGE(0, n)))
			a.completion(2, rdma.OpRDMARead, rdma.StatusSuccess)
			if !bytes.Equal(from.Bytes(), sent) {
				t.Error("the READ returned other bytes than the WRITE wrote")
			}
		})
	}
}
