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
	responder := func(t *testing.T, responses int) *single {
		l := alone(t, 1, pairOptions{mtu: mtu, selective: true})
		l.m.keys[1] = make([]byte, responses*mtu)
		if n, _ := l.flood(pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, responses*mtu))); n != responses {
			t.Fatalf("a READ had %d responses, want %d", n, responses)
		}
		return l
	}
	ask := func(mark uint8, spans ...wire.Span) []byte {
		var body []byte
		for _, s := range spans {
			body = append(body, span(s)...)
		}
		return marked(selectivePacket(wire.RepeatResponses, 0, body), mark)
	}
	t.Run("the same responses many times", func(t *testing.T) {
		const responses = 520
		l := responder(t, responses)
		var spans []wire.Span
		for i := range uint32(wire.MaxSpans) {
			spans = append(spans, wire.Span{First: i % 3, Count: responses - i%5})
		}
		if n, _ := l.flood(ask(1, spans...)); n != responses {
			t.Errorf("%d responses were repeated, want each of %d once", n, responses)
		}
		if got := l.q.resp.mark; got != 1 {
			t.Errorf("the responder has recorded mark %d, want 1, that of the request", got)
		}
	})
	t.Run("more than a window", func(t *testing.T) {
		const responses = 3 * DefaultWindow / mtu
		l := responder(t, responses)
		var spans []wire.Span
		for i := range uint32(wire.MaxSpans) {
			spans = append(spans, wire.Span{First: i * responses / wire.MaxSpans, Count: responses / wire.MaxSpans})
		}
		if _, bytes := l.flood(ask(1, spans...)); bytes > DefaultWindow || bytes < DefaultWindow/2 {
			t.Errorf("%d bytes were repeated, a window is %d", bytes, DefaultWindow)
		}
		if n, _ := l.flood(ask(2, wire.Span{First: responses - 5, Count: 9})); n != 5 {
			t.Errorf("%d responses were repeated, want 5", n)
		}
	})
	t.Run("many requests before the first is answered", func(t *testing.T) {
		const responses = 1000
		l := responder(t, responses)
		for i := range 5000 {
			l.arrive(ask(uint8(i&0x7f), wire.Span{First: uint32(2 * i % responses), Count: 1}, wire.Span{First: uint32(i % responses), Count: 3}))
		}
		if r := l.q.resp.repeats; r != nil && len(r.queue) > maxRepeats+1 {
			t.Errorf("%d runs wait to be repeated, the limit is %d", len(r.queue), maxRepeats)
		}
		if n, _ := l.flood(); n > responses {
			t.Errorf("%d responses were repeated, there are %d", n, responses)
		}
	})
	t.Run("a result of an atomic", func(t *testing.T) {
		l := alone(t, 1, pairOptions{mtu: mtu, selective: true})
		l.m.keys[1] = make([]byte, 8)
		l.flood(pkt(wire.FetchAdd, 0, false, 0, atomicETH(1, 0, 2, 0)))
		var spans []wire.Span
		for range wire.MaxSpans {
			spans = append(spans, wire.Span{First: 0, Count: 1})
		}
		if n, _ := l.flood(ask(1, spans...)); n != 1 {
			t.Errorf("%d results of an atomic were repeated, want 1, although the request names it in every span", n)
		}
	})
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
