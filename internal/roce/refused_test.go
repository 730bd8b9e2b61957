package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// failingBatches is a Handler that refuses every batch in which a WRITE has ended.
type failingBatches struct {
	*memory
	wrote bool
}

func (f *failingBatches) EndWrite(s Sink, done bool) NAK {
	f.wrote = true
	return f.memory.EndWrite(s, done)
}

func (f *failingBatches) EndBatch() NAK {
	if f.wrote {
		return NAKRemoteAccess
	}
	return NAKNone
}

// The NAK for a batch of packets names the first packet of the batch, so that the peer
// fails the request with the right status, and nothing of the batch is acknowledged.
func TestRefusedBatch(t *testing.T) {
	p := newPair(t, pairOptions{mtu: 256, psn: [2]uint32{0xfffffe, 0x123456}})
	p.mem[1].keys[1] = make([]byte, 1000)
	h := &failingBatches{memory: p.mem[1]}
	p.qp[1].h = h
	read := &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 700)}, Length: 700, RKey: 1}
	p.post(0, read)
	p.run(1 << 10)
	p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: make([]byte, 600)}, Length: 600, RKey: 1}, &Work{Op: WRLocal})
	p.run(1 << 16)
	p.mem[0].statuses(rdma.StatusSuccess, rdma.StatusRemAccessErr, rdma.StatusWRFlushErr)
	p.mem[1].failedWith(Failure{Status: rdma.StatusRemAccessErr, NAK: NAKRemoteAccess})
	p.idle()
}
