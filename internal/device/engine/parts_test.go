package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/rdma"
)

// TestReadInParts reads a signed key whose addresses begin above 4 GiB, without selective repeat and over
// a network that loses packets. The transport then sends the READs in parts, which begin within
// blocks.
func TestReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reads, size, rounds = 16, 128 * 512, 100
		network := netem.NewNetwork(1, netem.Faults{Loss: 0.05}, nil)
		x, y := newEnd(t, network.Listen, "2001:db8::1", QPAttr{}), newEnd(t, network.Listen, "2001:db8::2", QPAttr{})
		defer x.close()
		defer y.close()
		connect(x, x.qp, y, y.qp)
		connect(y, y.qp, x, x.qp)
		how := lossyKey{sign: true, start: 3<<32 + 8}
		xm, ym := x.lossyMemory(reads, size, false, how, nil), y.lossyMemory(reads, size, false, how, nil)
		rand.NewChaCha8([32]byte{1}).Read(ym.b)
		// A READ is sent in parts if the congestion window is small when it begins. That depends on the packets that
		// the network has lost by then, so the test repeats the READs until some were sent in parts.
		for round := range rounds {
			clear(xm.b)
			for i := range reads {
				from := ym.at(i, how.wire(size))
				x.post(&SendRequest{ID: uint64(i), Op: ibv.WRRead, SGEs: []rdma.SGE{xm.at(i, how.wire(size))}, RKey: from.LKey, RemoteAddr: from.Addr})
			}
			for i := range reads {
				x.want(t, fmt.Sprintf("send %d: success", i))
			}
			if !bytes.Equal(xm.b, ym.b) {
				t.Fatal("wrong bytes")
			}
			if y.dev.port.Counters().ReadRequests > uint64(round+2)*reads {
				return
			}
		}
		t.Errorf("%d rounds of %d READs were not sent in parts", rounds, reads)
	})
}
