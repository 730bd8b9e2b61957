package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
)

// flood delivers packets and returns the number of packets and bytes that the QP sends.
func (l *single) flood(packets ...[]byte) (n, bytes int) {
	l.arrive(packets...)
	for _, b := range l.drain(l.at) {
		n++
		bytes += len(b)
	}
	return n, bytes
}

// TestAmplification sends requests whose answers are much longer than they are.
func TestAmplification(t *testing.T) {
	const mtu = 256
	t.Run("copies of a READ request that is being answered", func(t *testing.T) {
		const responses = 1000
		l := alone(t, 1, pairOptions{mtu: mtu})
		l.m.keys[1] = make([]byte, responses*mtu)
		var packets [][]byte
		for range 100 {
			packets = append(packets, pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, responses*mtu)))
		}
		if n, _ := l.flood(packets...); n != responses {
			t.Errorf("%d responses to copies in one batch, want %d", n, responses)
		}
	})
	t.Run("copies of WRITEs", func(t *testing.T) {
		l := alone(t, 1, pairOptions{mtu: mtu})
		l.m.keys[1] = make([]byte, 8)
		var packets [][]byte
		for range 100 {
			packets = append(packets, pkt(wire.WriteOnly, 0, true, 4, reth(1, 0, 4)))
		}
		if n, _ := l.flood(packets...); n != 1 {
			t.Errorf("%d acknowledgements, want 1", n)
		}
	})
}
