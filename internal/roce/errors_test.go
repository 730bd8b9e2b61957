package roce

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// statuses fails the test unless the completions of m have the statuses want.
func (m *memory) statuses(want ...rdma.Status) {
	m.t.Helper()
	var got []rdma.Status
	for _, e := range m.ended {
		got = append(got, e.st)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		m.t.Errorf("%s: statuses %v, want %v", m.name, got, want)
	}
}

// failedWith fails the test unless the QP failed exactly once with want, and gave a
// reason. If want.Err is set, the reason must be or wrap it.
func (m *memory) failedWith(want Failure) {
	m.t.Helper()
	if len(m.failed) != 1 {
		m.t.Errorf("%s: failures %v, want %v", m.name, m.failed, want)
		return
	}
	got := m.failed[0]
	if got.Status != want.Status || got.NAK != want.NAK || want.Err != nil && !errors.Is(got.Err, want.Err) {
		m.t.Errorf("%s: failure %+v, want %+v", m.name, got, want)
	}
	if got.Err == nil || got.Err.Error() == "" {
		m.t.Errorf("%s: failure %+v without a reason", m.name, got)
	}
}

// TestRefusedRequests lets side 1 reject a request of side 0 for each possible reason,
// before and after other work.
func TestRefusedRequests(t *testing.T) {
	const mtu = 1024
	type side = memory
	data := pattern(5*mtu, 1)
	write := func(n int, rkey uint32, va uint64) *Work {
		return &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: uint32(n), RKey: rkey, RemoteAddr: va}
	}
	for _, v := range []struct {
		name string
		w    *Work
		prep func(b *side)
		st   rdma.Status
		nak  NAK
		err  error
	}{
		{name: "WRITE to no key", w: write(10, 99, 0), st: rdma.StatusRemAccessErr, nak: NAKRemoteAccess},
		{name: "WRITE out of bounds", w: write(3*mtu, 1, 8*mtu), st: rdma.StatusRemAccessErr, nak: NAKRemoteAccess},
		{name: "READ of no key", w: &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 10)}, Length: 10, RKey: 99}, st: rdma.StatusRemAccessErr, nak: NAKRemoteAccess},
		{name: "READ out of bounds", w: &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 10)}, Length: 10, RKey: 1, RemoteAddr: 10*mtu - 9}, st: rdma.StatusRemAccessErr, nak: NAKRemoteAccess},
		{name: "atomic on no key", w: &Work{Op: ibv.WRFetchAdd, RKey: 99}, st: rdma.StatusRemAccessErr, nak: NAKRemoteAccess},
		{name: "atomic not aligned", w: &Work{Op: ibv.WRCmpSwap, RKey: 1, RemoteAddr: 4}, st: rdma.StatusRemInvReqErr, nak: NAKInvalidRequest},
		{name: "masked atomic not aligned", w: &Work{Op: ibv.WRMaskedFetchAdd, Length: 4, RKey: 1, RemoteAddr: 2}, st: rdma.StatusRemInvReqErr, nak: NAKInvalidRequest},
		{name: "SEND too long", w: &Work{Op: ibv.WRSend, Src: &source{b: data}, Length: 5 * mtu}, prep: func(b *side) { b.recv(make([]byte, 5*mtu-1)) }, st: rdma.StatusRemInvReqErr, nak: NAKInvalidRequest, err: NAKInvalidRequest.Err()},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := newPair(t, pairOptions{mtu: mtu})
			a, b := p.mem[0], p.mem[1]
			b.keys[1] = make([]byte, 10*mtu)
			if v.prep != nil {
				v.prep(b)
			}
			before := make([]byte, 4*mtu)
			p.post(0, write(100, 1, 0),
				&Work{Op: ibv.WRRead, Dst: &sink{b: before}, Length: uint32(len(before)), RKey: 1},
				v.w, write(100, 1, 0), &Work{Op: WRLocal})
			p.run(1 << 16)
			// The last WRITE was in flight, so the local work may not have
			// begun.
			a.statuses(append([]rdma.Status{rdma.StatusSuccess, rdma.StatusSuccess, v.st}, []rdma.Status{rdma.StatusWRFlushErr, rdma.StatusWRFlushErr}[:len(a.ended)-3]...)...)
			a.failedWith(Failure{Status: v.st})
			b.failedWith(Failure{Status: v.st, NAK: v.nak, Err: v.err})
			for i := range p.qp {
				if p.qp[i].State() != rdma.StateErr {
					t.Errorf("side %d: state %v", i, p.qp[i].State())
				}
			}
			if n := p.port[1].Counters().ErrorNAKsSent; n != 1 {
				t.Errorf("%d NAKs sent", n)
			}
			p.idle()
		})
	}
}

// TestMemoryFails returns errors from Sources and Sinks in the middle of a message.
func TestMemoryFails(t *testing.T) {
	const mtu = 1024
	data := pattern(8*mtu, 1)
	bad := &source{b: data, err: errTest, at: 3 * mtu}
	t.Run("requester's Source", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = make([]byte, 8*mtu)
		ok := &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 8 * mtu, RKey: 1}
		p.post(0, ok, &Work{Op: ibv.WRWrite, Src: bad, Length: 8 * mtu, RKey: 1}, &Work{Op: WRLocal})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusSuccess, rdma.StatusLocProtErr)
		p.mem[0].failedWith(Failure{Status: rdma.StatusLocProtErr, Err: errTest})
		if len(p.mem[1].failed) != 0 {
			t.Error("the responder failed, too")
		}
		p.qp[1].Fail()
		p.idle()
	})
	t.Run("requester's Source with a status", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].recv(make([]byte, 8*mtu))
		p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: data, err: fmt.Errorf("no: %w", rdma.StatusLocQPOpErr.Err())}, Length: 8 * mtu})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusLocQPOpErr)
	})
	t.Run("requester's Source, at a retransmission", func(t *testing.T) {
		if onePort {
			t.Skip("no packet is lost inside a port")
		}
		if byMemory[0] {
			t.Skip("in memory the message is one packet")
		}
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = make([]byte, 8*mtu)
		src := &source{b: data}
		sent := 0
		p.watch = func(to int, _ []byte) {
			if to == 1 {
				sent++
			}
		}
		p.fault = losing(func(to int, _ []byte) bool {
			lost := to == 1 && sent == 3
			if lost {
				src.err, src.at = errTest, mtu
			}
			return lost
		})
		p.post(0, &Work{Op: ibv.WRWrite, Src: src, Length: 8 * mtu, RKey: 1})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusLocProtErr)
		p.mem[0].failedWith(Failure{Status: rdma.StatusLocProtErr, Err: errTest})
		p.qp[1].Fail()
		p.idle()
	})
	t.Run("requester's Sink", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = data
		p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 8*mtu), err: errTest, at: 2 * mtu}, Length: 8 * mtu, RKey: 1})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusLocProtErr)
		p.mem[0].failedWith(Failure{Status: rdma.StatusLocProtErr, Err: errTest})
	})
	t.Run("responder's Source", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = data
		p.qp[1].h = failingReads{p.mem[1], bad}
		dst := make([]byte, 8*mtu)
		s := &sink{b: dst}
		p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: mtu, RKey: 1},
			&Work{Op: ibv.WRRead, Dst: s, Length: 8 * mtu, RKey: 1},
			&Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 8*mtu)}, Length: 8 * mtu, RKey: 1})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusSuccess, rdma.StatusRemOpErr, rdma.StatusWRFlushErr)
		p.mem[1].failedWith(Failure{Status: rdma.StatusRemOpErr, NAK: NAKRemoteOperational, Err: errTest})
		if !onePort && s.n != 3*mtu || !bytes.Equal(dst[:s.n], data[:s.n]) {
			t.Errorf("%d bytes came before the failure, want %d", s.n, 3*mtu)
		}
		p.idle()
	})
	t.Run("responder's Sink", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.qp[1].h = failingWrites{p.mem[1]}
		p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 8 * mtu, RKey: 1})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusRemAccessErr)
		p.mem[1].failedWith(Failure{Status: rdma.StatusRemAccessErr, NAK: NAKRemoteAccess, Err: NAKRemoteAccess.Err()})
		p.idle()
	})
	t.Run("responder's end of a WRITE", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = make([]byte, 8*mtu)
		p.qp[1].h = failingEnds{p.mem[1]}
		p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 8 * mtu, RKey: 1})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusRemOpErr)
		p.idle()
	})
	t.Run("requester's end", func(t *testing.T) {
		p := newPair(t, pairOptions{mtu: mtu})
		p.mem[1].keys[1] = make([]byte, 8*mtu)
		p.qp[0].h = failingCompletions{p.mem[0]}
		w := func() *Work { return &Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 8 * mtu, RKey: 1} }
		p.post(0, w(), w(), w())
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusSuccess, rdma.StatusWRFlushErr, rdma.StatusWRFlushErr)
		p.mem[0].failedWith(Failure{Status: rdma.StatusLocProtErr})
	})
}

type failingReads struct {
	*memory
	src Source
}

func (h failingReads) OpenRead(rkey uint32, va uint64, n uint32, _ uint64) (Source, NAK) {
	h.memory.open++
	return h.src, NAKNone
}

type failingWrites struct{ *memory }

func (h failingWrites) OpenWrite(rkey uint32, va uint64, n uint32) (Sink, NAK) {
	h.memory.open++
	return &sink{b: make([]byte, n), err: NAKRemoteAccess.Err(), at: int(n) / 2}, NAKNone
}

func (h failingWrites) EndWrite(Sink, bool) NAK { h.memory.open--; return NAKNone }

type failingEnds struct{ *memory }

func (h failingEnds) EndWrite(Sink, bool) NAK { h.memory.open--; return NAKRemoteOperational }

type failingCompletions struct{ *memory }

func (h failingCompletions) Completed(w *Work, st rdma.Status) rdma.Status {
	h.memory.Completed(w, st)
	return rdma.StatusLocProtErr
}

// TestWorkThatCannotBe posts Work that the transport refuses before it sends a packet.
func TestWorkThatCannotBe(t *testing.T) {
	for _, v := range []struct {
		w    Work
		rd   int
		want rdma.Status
	}{
		{Work{Op: 7}, 4, rdma.StatusLocQPOpErr},
		{Work{Op: ibv.WRSend, Length: MaxMessage + 1}, 4, rdma.StatusLocLenErr},
		{Work{Op: ibv.WRRead, Length: MaxMessage + 1}, 4, rdma.StatusLocLenErr},
		{Work{Op: ibv.WRRead, Length: 4}, -1, rdma.StatusLocQPOpErr},
		{Work{Op: ibv.WRFetchAdd}, -1, rdma.StatusLocQPOpErr},
		{Work{Op: ibv.WRMaskedFetchAdd, Length: 8}, -1, rdma.StatusLocQPOpErr},
		{Work{Op: ibv.WRMaskedCmpSwap, Length: 16}, 4, rdma.StatusLocLenErr},
		{Work{Op: WRLocal, Status: rdma.StatusMWBindErr}, 4, rdma.StatusMWBindErr},
	} {
		p := newPair(t, pairOptions{rdAtomic: v.rd, mtu: 256})
		p.mem[1].keys[1] = make([]byte, 10)
		p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: make([]byte, 10)}, Length: 10, RKey: 1}, &v.w, &Work{Op: WRLocal})
		p.run(1 << 16)
		p.mem[0].statuses(rdma.StatusSuccess, v.want)
		p.mem[0].failedWith(Failure{Status: v.want})
		p.qp[1].Reset()
		p.idle()
	}
}

func TestTimerCodes(t *testing.T) {
	// Table 45 and section 9.7.6.1.3.
	for code, want := range map[uint8]time.Duration{0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond, 31: 491520 * time.Microsecond} {
		if got := RNRTimer(code); got != want {
			t.Errorf("RNR timer %d: %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 8796093022208 * time.Nanosecond} {
		if got := AckTimeout(code); got != want {
			t.Errorf("timeout %d: %v, want %v", code, got, want)
		}
	}
}
