package roce

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// Table tests of the types that detect losses, recover from them and control
// congestion. No QP is involved.

func TestRoundTrips(t *testing.T) {
	const ms = 1e6
	for _, v := range []struct {
		name     string
		do       func(r *roundTrips)
		smoothed int64
	}{
		{"nothing measured", func(*roundTrips) {}, firstRTT},
		{"first sample", func(r *roundTrips) { r.measure(5, 1); r.acknowledged(6, 0, 1+3*ms) }, 3 * ms},
		{"second sample counts an eighth", func(r *roundTrips) { r.add(8*ms, 9*ms); r.add(16*ms, 26*ms) }, 9 * ms},
		{"not acknowledged yet", func(r *roundTrips) { r.measure(5, 1); r.acknowledged(5, 0, 3*ms) }, firstRTT},
		{"the first measurement stays", func(r *roundTrips) { r.measure(5, 1); r.measure(6, ms); r.acknowledged(6, 0, 1+3*ms) }, 3 * ms},
		{"retransmitted: no sample", func(r *roundTrips) { r.measure(5, 1); r.retransmitted(5); r.acknowledged(6, 1, 3*ms) }, firstRTT},
		{"another one retransmitted", func(r *roundTrips) { r.measure(5, 1); r.retransmitted(4); r.acknowledged(6, 1, 1+3*ms) }, 3 * ms},
		{"responses requested again: no sample", func(r *roundTrips) { r.measure(5, 1); r.requestedAgain(); r.acknowledged(6, 1, 3*ms) }, firstRTT},
		{"retransmitted, after two probes", func(r *roundTrips) { r.measure(5, 1); r.retransmitted(5); r.acknowledged(6, 2, 1+3*ms) }, 3 * ms},
		{"before a probe", func(r *roundTrips) { beforeProbes(r, uncertainRow-1) }, ms},
		{"before a probe, many times", func(r *roundTrips) { beforeProbes(r, uncertainRow) }, 2 * ms},
		{"before a probe, many times, with a loss", func(r *roundTrips) { beforeProbes(r, uncertainRow-1); r.cancel(); beforeProbes(r, 1) }, ms},
		{"before a probe, many times, with a certain one", func(r *roundTrips) { beforeProbes(r, uncertainRow-1); r.add(ms, 1000*ms); beforeProbes(r, 1) }, ms},
		{"the first one before a probe", func(r *roundTrips) { r.measure(5, 1*ms); r.probed = 2 * ms; r.acknowledged(6, 1, 9*ms) }, 8 * ms},
		{"the first one before a probe, and a certain one", func(r *roundTrips) {
			r.measure(5, 1*ms)
			r.probed = 2 * ms
			r.acknowledged(6, 1, 9*ms)
			r.add(ms, 11*ms)
		}, ms},
		{"cancelled", func(r *roundTrips) { r.measure(5, 1); r.cancel(); r.acknowledged(6, 0, 3*ms) }, firstRTT},
		{"around the end of the PSNs", func(r *roundTrips) { r.measure(psnMask, 1); r.acknowledged(0, 0, 1+3*ms) }, 3 * ms},
	} {
		t.Run(v.name, func(t *testing.T) {
			var r roundTrips
			r.init()
			v.do(&r)
			if r.smoothed != v.smoothed {
				t.Errorf("smoothed %d, want %d", r.smoothed, v.smoothed)
			}
		})
	}
}

// beforeProbes adds n samples of 9 ms that may contain the wait for a probe, after one of 1 ms.
func beforeProbes(r *roundTrips, n int) {
	const ms = 1e6
	if !r.sampled {
		r.add(ms, 2*ms)
	}
	for range n {
		r.measure(5, 3*ms)
		r.probed = 4 * ms
		r.acknowledged(6, 1, 12*ms)
	}
}

func TestProbeTimes(t *testing.T) {
	const ms = int64(1e6)
	const full = 64 * ms
	fast := roundTrips{smoothed: ms, sampled: true} // its timeout is 2 ms
	slow := roundTrips{smoothed: 200 * ms, sampled: true}
	for _, v := range []struct {
		name    string
		rtt     roundTrips
		full    int64
		backoff uint8
		often   bool
		want    int64
	}{
		{"after about a round trip", fast, full, 0, false, 2 * ms},
		{"doubled", fast, full, 1, false, 4 * ms},
		{"at least 16 in a full timeout", fast, full, 5, false, full / probeParts},
		{"at least 4 if the round trip is unknown", roundTrips{smoothed: ms}, full, 5, false, full / leastProbes},
		{"at least 4 on a slow path", slow, full, 0, false, full / leastProbes},
		{"more after a full timeout", fast, full, 9, true, 2 * ms},
		{"without a timeout up to a second", fast, 0, 20, false, 1000 * ms},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := probes{from: 5, backoff: v.backoff}
			if got := p.after(&v.rtt, v.full, v.often) - 5; got != v.want {
				t.Errorf("after %d µs, want %d", got/1000, v.want/1000)
			}
		})
	}
}

// After a full timeout without progress, only a peer with selective repeat gets more probes.
func TestProbesAfterATimeout(t *testing.T) {
	q := &QP{send: transmission{Timeout: 14, RetryCount: 7}}
	full := q.fullTimeout()
	q.req = requester{rtt: roundTrips{smoothed: 1e6, sampled: true}, probes: probes{backoff: 9}}
	q.req.retries.count = 7
	for left, want := range []struct{ standard, selective int64 }{6: {full / probeParts, 2e6}, 7: {full / probeParts, full / probeParts}} {
		if want.standard == 0 {
			continue
		}
		q.req.retries.left = uint8(left)
		if a, b := (standard{q}).probeAfter(), (selective{q}).probeAfter(); a != want.standard || b != want.selective {
			t.Errorf("%d of 7 retries left: probes after %d and %d ns, want %d and %d", left, a, b, want.standard, want.selective)
		}
	}
}

func TestProbes(t *testing.T) {
	var p probes
	p.wait(100)
	p.fire(200)
	if !p.due || p.from != 200 || p.backoff != 1 {
		t.Errorf("%+v", p)
	}
	p.put(7)
	if p.due || !p.sent {
		t.Errorf("%+v", p)
	}
	for _, v := range []struct {
		before, una uint32
		alone       bool
	}{{7, 8, true}, {7, 9, false}, {6, 8, false}} {
		q := p
		if got := q.progressed(v.before, v.una, 300); got != v.alone {
			t.Errorf("from %d to %d: alone %v", v.before, v.una, got)
		}
		if q.backoff != 0 || q.sent || q.from != 300 {
			t.Errorf("%+v", q)
		}
	}
	for _, v := range []struct {
		psn   uint32
		older bool
		want  int64
	}{{50, true, 1000}, {6, false, 1000 - 800 + 800/copyParts}, {7, false, 200}} {
		q, r := probes{from: 200}, repeatedRequests{lastCopy: 5}
		if q.copyArrived(v.older, r.copied(v.psn), 1000, 1000); q.from != v.want || r.lastCopy != v.psn {
			t.Errorf("copy %d: the wait starts at %d, want %d", v.psn, q.from, v.want)
		}
	}
}

// TestDoubtfulResponses asks again for responses that may only be late. They count as lost once a later response
// shows it, unless one of them arrives twice before: then they were late.
func TestDoubtfulResponses(t *testing.T) {
	for _, v := range []struct {
		name  string
		after func(r *repeatedRequests)
		psn   uint32
		probe bool
		want  int64
	}{
		{"a response to a later request", func(*repeatedRequests) {}, 100, false, 3},
		{"a response to an earlier request", func(*repeatedRequests) {}, 99, false, 0},
		{"an answer to the probe", func(*repeatedRequests) {}, 99, true, 3},
		{"one that arrived twice", func(r *repeatedRequests) { r.copied(50) }, 100, false, 0},
		{"a second probe of fewer", func(r *repeatedRequests) { r.markAmbiguous(2, 110) }, 110, false, 3},
		{"a second decision", func(r *repeatedRequests) { r.resolve(100, false) }, 101, false, 0},
	} {
		var r repeatedRequests
		r.markAmbiguous(3, 100)
		v.after(&r)
		if got := r.resolve(v.psn, v.probe); got != v.want {
			t.Errorf("%s: %d were lost, want %d", v.name, got, v.want)
		}
	}
}

func TestRetries(t *testing.T) {
	const full = 1000
	start := func() *retries {
		var r retries
		r.init(transmission{RetryCount: 2, RNRRetry: 1}, 5)
		r.restarts(1)
		return &r
	}
	for _, v := range []struct {
		name string
		do   func(r *retries) []int
		want []int
	}{
		{"on time", func(r *retries) (got []int) {
			for now := int64(1); now < 4000; now += 500 {
				got = append(got, r.expire(now, full, 0))
			}
			return got
		}, []int{notExpired, notExpired, timedOut, notExpired, timedOut, notExpired, exhausted, exhausted}},
		{"no timeout", func(r *retries) []int { return []int{r.expire(1<<40, 0, 0)} }, []int{notExpired}},
		{"late once", func(r *retries) []int {
			return []int{r.expire(5000, full, 4000), r.expire(5500, full, 0), r.expire(6000, full, 4000)}
		}, []int{prolonged, notExpired, timedOut}},
		{"renewed by progress", func(r *retries) []int {
			a, b := r.expire(1001, full, 0), r.expire(2001, full, 0)
			r.progressed(6, 2500)
			return []int{a, b, r.expire(3499, full, 0), r.expire(3500, full, 0), r.expire(4500, full, 0), r.expire(5500, full, 0)}
		}, []int{timedOut, timedOut, notExpired, timedOut, timedOut, exhausted}},
		{"nothing in flight for a while", func(r *retries) []int {
			r.stops(500)
			r.restarts(900)
			return []int{r.expire(1399, full, 0), r.expire(1401, full, 0)}
		}, []int{notExpired, timedOut}},
		{"as many responses as were requested", func(r *retries) (got []int) {
			r.owe(2)
			for _, now := range []int64{900, 1800, 2700} {
				r.readAnswered(now)
			}
			return []int{r.expire(2799, full, 0), r.expire(2800, full, 0)}
		}, []int{notExpired, timedOut}},
		{"a SelectiveAck of nothing new", func(r *retries) []int {
			r.sackArrived(9, 500)
			r.sackArrived(9, 1000)
			r.sackArrived(8, 1400)
			return []int{r.expire(1500, full, 0)}
		}, []int{timedOut}},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := v.do(start()); fmt.Sprint(got) != fmt.Sprint(v.want) {
				t.Errorf("%v, want %v", got, v.want)
			}
		})
	}
	r := start()
	for i, want := range []bool{true, false} {
		if got := r.notReady(100); got != want {
			t.Errorf("RNR NAK %d: %v", i, got)
		}
	}
	r.progressed(6, 200)
	if !r.notReady(300) {
		t.Error("RNR retries were not renewed")
	}
	for range 2 * maxTries {
		r.tried()
		r.owe(1)
	}
	if r.owed != maxTries-1 {
		t.Errorf("%d responses count as requested", r.owed)
	}
}

func TestLossReportsPerRoundTrip(t *testing.T) {
	const timeout = 100
	type step struct {
		una  uint32
		now  int64
		want bool
	}
	for name, steps := range map[string][]step{
		"one report per round trip": {{5, 1, true}, {5, 100, false}, {5, 101, true}, {5, 150, false}},
		"another packet at once":    {{5, 1, true}, {6, 2, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var g gap
			for i, s := range steps {
				if got := g.reported(s.una, timeout, s.now); got != s.want {
					t.Errorf("step %d: %v", i, got)
				}
			}
			g.close()
			if !g.reported(steps[0].una, timeout, 1000) {
				t.Error("not a new loss after progress")
			}
		})
	}
}

func TestLostRequestReports(t *testing.T) {
	const trip, timeout = 20, 100
	var r repeatedRequests
	for i, s := range []struct {
		psn  uint32
		now  int64
		want bool
	}{
		{5, 1, true}, {5, 100, false}, {5, 101, true},
		{7, 110, false}, // the peer cannot have received request 5 yet
		{7, 111, true}, {9, 121, true},
	} {
		if got := r.refused(s.psn, trip, timeout, s.now); got != s.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

func TestScoreboard(t *testing.T) {
	const base = psnMask - 2 // the PSNs start again within the test
	var mem recoveryMemory
	b := openScoreboard(base, psnAdd(base, 7), &mem)
	if b == nil || mem.used.Load() == 0 {
		t.Fatal("not opened")
	}
	for i := range 7 {
		if i == 2 {
			b.noteUnsent(psnAdd(base, i)) // a later response of a READ
		} else {
			b.noteSent(psnAdd(base, i), 1, int64(10+i), 0)
		}
	}
	arrive := func(i int) bool {
		bytes, flew := b.noteArrived(psnAdd(base, i), 7, 100, 1000)
		return flew && bytes == int64(10+i)
	}
	overtaken := func(psn uint32) bool {
		bytes, ok := b.overtaken(3)
		return ok && b.isMissing(psn) && bytes == 10
	}
	pass := func(i int) bool { return b.pass(psnAdd(base, i), 7, 100, 2050) == int64(10+i) }
	states := func() (s string) {
		for i := range 7 {
			s += string("fam-"[b.at(psnAdd(base, i)).state])
		}
		return s
	}
	for _, v := range []struct {
		do     func() bool
		ok     bool
		states string
	}{
		{func() bool { return arrive(2) }, false, "ff-ffff"}, // the PSN is not a packet of its own
		{func() bool { return arrive(1) }, true, "fa-ffff"},
		{func() bool { return arrive(1) }, false, "fa-ffff"},       // the arrival is repeated
		{func() bool { return overtaken(base) }, false, "fa-ffff"}, // overtaken by one packet only
		{func() bool { return arrive(4) }, true, "fa-faff"},        // the third packet sent after base
		{func() bool { _, ok := b.overtaken(5); return ok }, false, "fa-faff"},
		{func() bool { return overtaken(base) }, true, "ma-faff"},
		{func() bool { return overtaken(psnAdd(base, 5)) }, false, "ma-faff"}, // this one was sent later
		{func() bool { return b.known(psnAdd(base, -3))&0x3F8 == 0x90 }, true, "ma-faff"},
		{func() bool { psn, any := b.toResend(base); return any && psn == base }, true, "ma-faff"},
		{func() bool { b.noteResent(base, 2000); return b.isMissing(base) }, false, "fa-faff"},
		{func() bool { return b.idle(psnAdd(base, 1)) }, false, "fa-faff"},
		{func() bool { return b.noteProbe(psnAdd(base, 1), 2000) }, true, "ff-faff"},
		{func() bool { return b.noteProbe(psnAdd(base, 1), 2000) }, false, "ff-faff"},
		{func() bool { return b.known(base)&0x7F == 0x10 && pass(0) && pass(1) }, true, "aa-faff"},
	} {
		if ok := v.do(); ok != v.ok || states() != v.states {
			t.Errorf("%v and %s, want %v and %s", ok, states(), v.ok, v.states)
		}
	}
	if b.idle(psnAdd(base, 2)) || !pass(3) || !pass(5) || b.idle(psnAdd(base, 6)) {
		t.Error("idle while packet 4 has arrived before una")
	}
	if pass(4) || !b.idle(psnAdd(base, 6)) {
		t.Errorf("not idle: %d missing, %d arrived", b.missing, b.arrived)
	}
	// A long READ does not fit the port's memory, and what was noted stays.
	if b.room(base, psnAdd(base, 7), 1<<23, &mem) || states() != "aa-aaaf" {
		t.Errorf("%s, %d entries", states(), len(b.ring))
	}
	if !b.room(base, psnAdd(base, 7), 1000, &mem) || states() != "aa-aaaf" {
		t.Errorf("%s, %d entries", states(), len(b.ring))
	}
	if b.free(&mem); mem.used.Load() != 0 {
		t.Errorf("%d bytes are counted", mem.used.Load())
	}
}

// TestReorderedPacket lets one packet arrive after another one that is in flight.
func TestReorderedPacket(t *testing.T) {
	for later := 1; later < 6; later++ {
		var mem recoveryMemory
		b := openScoreboard(0, 6, &mem)
		for i := range uint32(6) {
			b.noteSent(i, 1, 1, 0)
		}
		b.noteArrived(uint32(later), 6, 100, 1000)
		if _, got := b.overtaken(reorderPackets); got != (later >= reorderPackets) {
			t.Errorf("packet 0 is lost: %v, when packet %d has arrived", got, later)
		}
	}
}

func TestReadGaps(t *testing.T) {
	const base = psnMask - 9
	var mem recoveryMemory
	var r reads
	r.init(base)
	hold := func(is ...int) {
		for _, i := range is {
			p := psnAdd(base, i)
			r.early.put(p, i, pkt(wire.ReadResponseMiddle, p, false, 4), &mem)
			r.seen(p, base)
		}
	}
	ask := func(all bool) string {
		from, to := r.toScan(base)
		if all {
			from, to = base, psnAdd(base, 4)
		}
		if from == to {
			return ""
		}
		if !r.fitAsks(base, psnDiff(to, base), &mem) {
			t.Fatal("no memory")
		}
		next, n := r.scan(from, to, all, true)
		if next != to {
			t.Errorf("stopped at %d", next)
		}
		r.scanned = to
		if n > 0 {
			r.useMark()
		}
		s := ""
		for _, span := range r.spans(base) {
			s += fmt.Sprint(psnDiff(span.First, base), "+", span.Count, " ")
		}
		r.spansSent()
		return s
	}
	for i, v := range []struct {
		do   func()
		all  bool
		want string
	}{
		{func() {}, false, ""},
		{func() { hold(2) }, false, ""}, // overtaken by too few
		{func() { hold(3, 4, 7, 8) }, false, "0+2 5+1 "},
		{func() {}, false, ""},                       // already asked for
		{func() { hold(9, 12) }, false, "6+1 "},      // examined from where the last search ended
		{func() {}, true, "0+2 "},                    // a probe
		{func() { r.seeMark(1) }, false, "5+1 "},     // the first answer does not repeat 5; 0 and 1 were asked for again since
		{func() { r.seeMark(1) }, false, ""},         // the same mark again
		{func() { r.seeMark(10) }, false, ""},        // a mark that was never used
		{func() { r.seeMark(4) }, false, "0+2 5+2 "}, // all asks are answered
	} {
		v.do()
		if got := ask(v.all); got != v.want {
			t.Errorf("step %d: asked for %q, want %q", i, got, v.want)
		}
	}
	if r.leave(&mem); mem.used.Load() != 0 {
		t.Errorf("%d bytes are counted", mem.used.Load())
	}
}

func TestReadGrants(t *testing.T) {
	var r reads
	r.init(100)
	r.sentRead(100, 164, 16)
	for _, v := range []struct {
		una       uint32
		room, all int64
		want      bool
	}{{100, 7, 64, false}, {100, 8, 64, true}, {120, 8, 64, true}, {164, 64, 64, false}} {
		g := r
		if got := g.mayGrant(v.una, v.room, v.all); got != v.want || psnDiff(g.granted, v.una) < 0 {
			t.Errorf("%+v: %v, granted %d", v, got, g.granted)
		}
	}
	if r.grantUpTo(164); r.ungranted() {
		t.Error("all were granted")
	}
	if r.requestedAgain(); !r.completed(true) || !r.completed(false) || r.completed(false) {
		t.Error("withdrawals: one for each READ while responses may be repeated")
	}
	if s := r.spans(150); len(s) != 1 || s[0] != (wire.Span{First: 150}) {
		t.Errorf("withdrawal %v", s)
	}
}

func TestInFlight(t *testing.T) {
	var p peer
	p.out.init(10000, 10000)
	p.in.init(10000, 10000)
	q := &QP{peer: &p}
	f := &q.req.flight
	p.sent(f, 6000, 9000)
	for _, v := range []struct {
		out, in int64
		want    bool
	}{{4000, 0, true}, {0, 1000, true}, {4001, 0, false}, {0, 1001, false}} {
		f.begin()
		if got := p.room(q, v.out, v.in, 10000); got != v.want || f.blocked == v.want {
			t.Errorf("%+v: %v, blocked %v", v, got, f.blocked)
		}
	}
	if got := p.arrived(f, 3000, 5000, 1000, 1, 1); got != (released{q, q}) {
		t.Errorf("released %v", got)
	}
	if f.out != 3000 || f.in != 4000 || p.out.used.Load() != 3000 || p.in.used.Load() != 4000 {
		t.Errorf("%+v", *f)
	}
	p.lost(f, 1000, 1, 1, 2)
	p.reported(f, 500, 1, 1, 3)
	if p.release(f); f.out != 0 || f.in != 0 || p.out.used.Load() != 0 || p.in.used.Load() != 0 {
		t.Errorf("%+v, %d and %d in the windows", *f, p.out.used.Load(), p.in.used.Load())
	}
	if f.paceUntil(50); f.paceAt != 50 {
		t.Error("not paced")
	}
	if f.expire(49); f.paceAt != 50 {
		t.Error("pacing ended early")
	}
	if f.expire(50); f.paceAt != 0 {
		t.Error("pacing did not end")
	}
}

func TestCNPInterval(t *testing.T) {
	var c notifier
	sent := 0
	for now := int64(1); now < 10*cnpInterval; now += cnpInterval / 10 {
		if c.marked(now); c.due {
			sent++
			c.sent()
		}
	}
	if sent != 10 {
		t.Errorf("%d notifications in 10 intervals", sent)
	}
}

func TestWorkList(t *testing.T) {
	var l workList
	l.init(psnMask - 1)
	add := func(op rdma.WROp, count uint32) *Work {
		w := &Work{Op: op}
		w.progress = progress{first: l.end, count: count}
		l.add(w)
		return w
	}
	a := add(rdma.WRWrite, 2)
	l.sent(a, 1, false)
	l.sent(a, 1, true)
	local := add(WRLocal, 0)
	r := add(rdma.WRRead, 5)
	if l.cur != r || r.progress.first != 0 || l.end != 5 {
		t.Fatalf("%+v", l)
	}
	l.sent(r, 5, true)
	if l.cur != nil || l.next != 5 || l.high != 5 || l.inFlight != 1 || !l.allSent() {
		t.Errorf("%+v", l)
	}
	l.goBack()
	if l.cur != a || l.next != psnMask-1 || l.high != 5 || l.inFlight != 0 || l.allSent() {
		t.Errorf("%+v", l)
	}
	l.pass(2)
	if l.pop() != a || l.head != local {
		t.Error("pop")
	}
	if l.catchUp(); l.next != 0 || l.cur != r {
		t.Errorf("%+v", l)
	}
	if l.leave(); l.cur != nil || l.next != l.una || !l.stopped {
		t.Errorf("%+v", l)
	}
	l.pop()
	if l.pop() != r || l.head != nil || l.tail != nil {
		t.Error("the list is not empty")
	}
}

// TestSmallestWindow loses packets with the smallest window. A loss that no queue explains is the
// line's own and does not keep the window small; a smaller one may be that of a short queue, and so may
// one of a larger window before.
func TestSmallestWindow(t *testing.T) {
	for _, v := range []struct {
		yields       bool
		before, loss float64
		grows        bool
	}{{true, 0, 0.3, true}, {true, 0.5, 0.1, false}, {false, 0, 0.3, false}} {
		c := congestion{yields: v.yields, loss: v.before}
		c.lowest(4*minWindow, v.before)
		for range lowRounds - 1 {
			c.lowest(minWindow, v.loss)
		}
		if c.smallLoss != 0 {
			t.Errorf("%+v: before %d rounds: %v is the line's own", v, lowRounds, c.smallLoss)
		}
		c.lowest(minWindow, v.loss)
		if (c.smallLoss > 0) != v.grows || v.grows && c.tolerated(minWindow) < v.loss {
			t.Errorf("%+v: %v is the line's own", v, c.smallLoss)
		}
		for range floorRounds + 1 {
			c.lowest(4*minWindow, 0)
		}
		if c.smallLoss != 0 {
			t.Errorf("%+v: %v is the line's own for ever", v, c.smallLoss)
		}
	}
}

// TestUnmeasuredCut loses packets before any round trip was measured, and after.
func TestUnmeasuredCut(t *testing.T) {
	const limit = 1 << 20
	for _, v := range []struct{ rtt, want int64 }{{0, limit * 3 / 4}, {firstRTT / 2, limit / 2}} {
		c := congestion{}
		c.round(1, v.rtt, limit)
		c.delivered, c.lost = limit, minRound
		if got := c.round(1+firstRTT, v.rtt, limit); got != v.want {
			t.Errorf("round trip of %d: limit %d, want %d", v.rtt, got, v.want)
		}
	}
}
