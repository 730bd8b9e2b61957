package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// finishedRead returns a responder, with an MTU of 256 and receive requests, that has
// answered a READ of 4 responses with PSNs 0 to 3.
func finishedRead(t *testing.T) *single {
	l := alone(t, 1, pairOptions{mtu: 256, selective: true})
	l.m.keys[1] = make([]byte, 1024)
	for range 4 {
		l.m.recv(make([]byte, 256))
	}
	l.give(pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, 1024)))
	if n := len(l.m.reported); n != 1 {
		t.Fatalf("the READ was opened %d times", n)
	}
	return l
}

// marked sets the Mark of packet b.
func marked(b []byte, mark uint8) []byte {
	h, _, _ := wire.ParseBTH(b)
	h.Mark = mark
	wire.PutBTH(b, &h)
	return b
}

// TestRetiredRead asks again for responses of a READ, while a SEND states that the
// requester has them. The responder must not read their memory, whether the packets that
// ask for them arrive before the SEND or after it.
func TestRetiredRead(t *testing.T) {
	again := func() []byte {
		return selectivePacket(wire.RepeatResponses, 4, span(wire.Span{First: 1, Count: 2}))
	}
	read := func() []byte { return pkt(wire.ReadRequest, 0, true, 0, reth(1, 0, 1024)) }
	send := func(outstanding int) []byte {
		return marked(pkt(wire.SendOnly, 4, true, 4), wire.OutstandingMark(outstanding))
	}
	const ack = "Acknowledge 4 msn 2"
	for _, c := range []struct {
		name    string
		packets [][]byte
		opened  int
	}{
		{"repeat before", [][]byte{again(), send(0)}, 1},
		{"repeat after", [][]byte{send(0), again()}, 1},
		{"request after", [][]byte{send(0), read()}, 1},
		{"outstanding", [][]byte{again(), send(1)}, 2},
		{"withdrawn", [][]byte{again(), selectivePacket(wire.RepeatResponses, 4, span(wire.Span{First: 4})), read()}, 1},
		{"withdrawn in part", [][]byte{again(), selectivePacket(wire.RepeatResponses, 4, span(wire.Span{First: 3}))}, 2},
		{"no statement", [][]byte{again(), marked(send(0), 0)}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := finishedRead(t)
			l.give(c.packets...)
			if n := len(l.m.reported); n != c.opened {
				t.Errorf("the READ's memory was opened %d times, want %d", n, c.opened)
			}
			if len(l.m.got) > 1 || l.m.open != 0 || l.q.State() != rdma.StateRTS {
				t.Errorf("%d messages, %d Sources open, state %v", len(l.m.got), l.m.open, l.q.State())
			}
		})
	}

	// A duplicate of the request arrives before the SEND and opens the memory. The
	// SEND closes it, and only the acknowledgement is sent.
	l := finishedRead(t)
	l.expect(l.give(read(), send(0)), ack)
	if l.m.open != 0 {
		t.Errorf("%d Sources are open", l.m.open)
	}
}

// TestOutstandingMark checks the number of outstanding READs that a SEND states: one
// after a READ without responses, none once the responses have arrived.
func TestOutstandingMark(t *testing.T) {
	l := alone(t, 0, pairOptions{mtu: 256, selective: true})
	mark := func() uint8 {
		t.Helper()
		for _, p := range l.drain(l.at) {
			if opcodeOf(p) == wire.SendOnly {
				h, _, _ := wire.ParseBTH(p)
				return h.Mark
			}
		}
		t.Fatal("no SEND was sent")
		return 0
	}
	l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, 4)}, Length: 4, RKey: 1}, &Work{Op: rdma.WRSend})
	if got, want := mark(), wire.OutstandingMark(1); got != want {
		t.Errorf("mark %d behind an outstanding READ, want %d", got, want)
	}
	l.give(pkt(wire.ReadResponseOnly, 0, false, 4, aeth(wire.ACKNoCredits)))
	l.post(0, &Work{Op: rdma.WRSend})
	if got, want := mark(), wire.OutstandingMark(0); got != want {
		t.Errorf("mark %d after the READ completed, want %d", got, want)
	}
}

// TestArrivedIsNotAskedFor builds a RepeatResponses for spans that have arrived, wholly
// or in part, since they were queued. The packet must not ask for the arrived responses.
func TestArrivedIsNotAskedFor(t *testing.T) {
	l := alone(t, 0, pairOptions{mtu: 256, selective: true})
	l.q.req.reads.want().missing = []wire.Span{{First: psnAdd(0, -3), Count: 2}, {First: psnAdd(0, -1), Count: 3}}
	l.post(0, &Work{Op: rdma.WRSend})
	for _, p := range l.drain(l.at) {
		if opcodeOf(p) != wire.RepeatResponses {
			continue
		}
		body, ok := wire.ParseSelective(p)
		if !ok || len(body) != 2*wire.SpanLen {
			t.Fatalf("malformed %x", p)
		}
		for _, want := range []wire.Span{{First: 0, Count: 0}, {First: 0, Count: 2}} {
			got, n, _ := wire.ParseSpan(body)
			body = body[n:]
			if got != want {
				t.Errorf("asks for %+v, want %+v", got, want)
			}
		}
		return
	}
	t.Error("no RepeatResponses was sent")
}

// completing calls a function when a request completes.
type completing struct {
	*memory
	then func()
	n    int
}

func (h *completing) Completed(w *Work, st rdma.Status) rdma.Status {
	h.n++
	h.then()
	return h.memory.Completed(w, st)
}

// TestWithdrawal loses a response of a READ, asks for it again, and completes the READ.
// The requester must withdraw its request for the response with the next packet: the peer
// may still hold the RepeatResponses, and would read memory that the application has
// reused.
func TestWithdrawal(t *testing.T) {
	const mtu, packets = 256, 8
	l := alone(t, 0, pairOptions{mtu: mtu, selective: true})
	l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, packets*mtu)}, Length: packets * mtu, RKey: 1})
	l.sent()
	deliver := func(psns ...int) (sent [][]wire.Span) {
		var raw [][]byte
		for _, i := range psns {
			b := readResponse(0, i, packets, mtu)
			if i == 1 {
				b = marked(b, l.q.req.reads.askMark) // the only one that is sent a second time
			}
			l.arrive(b)
			raw = append(raw, l.drain(0)...)
		}
		for _, p := range raw {
			body, ok := wire.ParseSelective(p)
			if !ok || opcodeOf(p) != wire.RepeatResponses {
				t.Errorf("sent %x, want a RepeatResponses", p)
				continue
			}
			var spans []wire.Span
			for len(body) >= wire.SpanLen {
				s, n, _ := wire.ParseSpan(body)
				spans, body = append(spans, s), body[n:]
			}
			sent = append(sent, spans)
		}
		return sent
	}
	if sent := deliver(0, 2, 3, 4, 5); len(sent) != 1 || len(sent[0]) != 1 || sent[0][0] != (wire.Span{First: 1, Count: 1}) {
		t.Fatalf("asked for %+v, want response 1 alone", sent)
	}
	l.m.statuses()
	// The withdrawal must be queued when the application sees the completion: then any packet that the
	// application causes is sent after it.
	h := &completing{memory: l.m, then: func() {
		if !l.q.req.reads.withdraw || l.port[0].ready.empty() {
			t.Error("the READ completed before its withdrawal was queued")
		}
	}}
	l.q.h = h
	sent := deliver(6, 7, 1)
	l.m.statuses(rdma.StatusSuccess)
	if l.q.h = l.m; h.n != 1 {
		t.Errorf("%d completions were seen", h.n)
	}
	if len(sent) != 1 || len(sent[0]) != 1 || sent[0][0] != (wire.Span{First: packets}) {
		t.Errorf("sent %+v when the READ completed, want a withdrawal of all before PSN %d", sent, packets)
	}
	// A READ whose responses were not asked for again needs none.
	l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, mtu)}, Length: mtu, RKey: 1})
	l.sent()
	if got := l.give(pkt(wire.ReadResponseOnly, packets, false, mtu, aeth(wire.ACKNoCredits))); got != "" {
		t.Errorf("sent %s", got)
	}
}
