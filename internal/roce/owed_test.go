package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// TestOwedAcknowledgement closes a QP, or its port, after a message has completed and before
// its acknowledgement was sent.
func TestOwedAcknowledgement(t *testing.T) {
	for name, end := range map[string]func(p *pair){
		"Close":      func(p *pair) { p.qp[1].Close() },
		"Reset":      func(p *pair) { p.qp[1].Reset() },
		"Fail":       func(p *pair) { p.qp[1].Fail() },
		"Port.Close": func(p *pair) { p.port[1].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pairOptions{mtu: 1024})
			p.mem[1].recv(make([]byte, 8))
			p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: make([]byte, 8)}, Length: 8})
			p.port[0].pump(1)
			for _, d := range p.conn[0].sent {
				p.deliver(1, d.Buf, d.TOS)
			}
			if len(p.mem[1].got) != 1 || len(p.conn[1].sent) != 0 {
				t.Fatalf("%d messages, %d packets sent", len(p.mem[1].got), len(p.conn[1].sent))
			}
			end(p)
			acks := 0
			for _, d := range p.conn[1].sent {
				if bth := wire.ParseBTH(d.Buf); bth.Opcode == wire.Acknowledge && bth.DestQP == p.qp[0].num {
					acks++
				}
			}
			if acks != 1 {
				t.Errorf("%d acknowledgements among %d packets", acks, len(p.conn[1].sent))
			}
		})
	}
}
