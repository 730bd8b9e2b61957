package loss

import "testing"

const (
	ms   = int64(1e6)
	full = 64 * ms
)

// sampled returns a Sender with a round trip of 1 ms, a packet in flight since time 0, and 2 retries.
func sampled(a Attributes) *Sender {
	if a.Timeout == 0 {
		a.Timeout = full
	}
	a.Retries, a.RNRRetries = 2, 1
	s := NewSender(a)
	s.trips = trips{smoothed: ms, sampled: true} // its timeout is 2 ms
	s.Sent(5, true, true, false, 0)
	return &s
}

// TestSender feeds senders with events and expects exact decisions.
func TestSender(t *testing.T) {
	tick := func(s *Sender) Action { return s.Tick(s.Deadline(), 0) }
	for name, do := range map[string]func(s *Sender) []any{
		"questions come after about a round trip, and after twice the time each": func(s *Sender) []any {
			first := s.Deadline()
			a := tick(s)
			second := s.Deadline()
			b := tick(s)
			return []any{first, 2 * ms, a, Ask, second, 6 * ms, b, Ask, s.Deadline(), 10 * ms}
		},
		"before the deadline nothing happens": func(s *Sender) []any { return []any{s.Tick(2*ms-1, 0), Nothing} },
		"a timeout goes back, and the last one fails": func(s *Sender) []any {
			return []any{s.Tick(full, 0), Resend, s.Tick(2*full-1, 0), Ask, s.Tick(2*full, 0), Resend, s.Tick(3*full, 0), Fail}
		},
		"a late timer is prolonged once": func(s *Sender) []any {
			return []any{s.Tick(3*full, 2*full), Nothing, s.Tick(5*full, 2*full), Resend}
		},
		"a peer that does not run uses up no retries": func(s *Sender) []any {
			now := int64(0)
			for range 20 {
				s.Postpone(now)
				if now += full; s.Tick(now-1, 0) == Fail {
					return []any{"failed", ""}
				}
			}
			return []any{s.Tick(now, 0), Resend}
		},
		"progress renews the retries": func(s *Sender) []any {
			s.Tick(full, 0)
			s.Tick(2*full, 0)
			s.Acknowledged(5, 6, true, 2*full+1)
			return []any{s.Tick(3*full, 0), Ask, s.Tick(3*full+1, 0), Resend, s.Tick(4*full+1, 0), Resend, s.Tick(5*full+1, 0), Fail}
		},
		"time without packets in flight does not count": func(s *Sender) []any {
			s.Stopped(ms)
			s.Sent(5, true, false, true, 10*ms)
			return []any{s.Deadline(), 12 * ms, s.Tick(full, 0), Ask, s.Tick(full+9*ms, 0), Resend}
		},
		"the answer to a question alone shows a lost tail": func(s *Sender) []any {
			tick(s)
			_, do := s.Acknowledged(5, 6, true, 3*ms)
			return []any{do, Resend}
		},
		"an answer too soon is that to the first transmission": func(s *Sender) []any {
			tick(s)
			_, do := s.Acknowledged(5, 6, true, 2*ms+ms/2-1)
			return []any{do, Nothing}
		},
		"an acknowledgement of more than the question shows nothing": func(s *Sender) []any {
			tick(s)
			_, a := s.Acknowledged(5, 7, true, 3*ms)
			tick(s)
			_, b := s.Acknowledged(7, 8, false, 9*ms)
			return []any{a, Nothing, b, Nothing}
		},
		"a gap is handled once in a round trip": func(s *Sender) []any {
			return []any{s.Gap(1), Resend, s.Gap(2 * ms), Nothing, s.Gap(1 + 2*ms), Resend}
		},
		"another gap is handled at once": func(s *Sender) []any {
			a := s.Gap(1)
			s.Acknowledged(5, 6, true, 2)
			return []any{a, Resend, s.Gap(3), Resend}
		},
		"RNR retries are used up, and renewed by progress": func(s *Sender) []any {
			a, b := s.NotReady(1), s.NotReady(2)
			s.Acknowledged(5, 6, true, 3)
			return []any{a, Resend, b, Fail, s.NotReady(4), Resend}
		},
		"copies of responses put off the timeout, up to a limit": func(s *Sender) []any {
			now := int64(0)
			for ; now < 20*full; now += full / 2 {
				s.Waits(now)
			}
			since := s.since
			return []any{since, mostCopies*full - full/2, s.Tick(now, 0), Resend}
		},
		"a peer that sends responses is not asked": func(s *Sender) []any {
			s.Waits(5 * ms)
			return []any{s.Deadline(), 7 * ms}
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := do(sampled(Attributes{}))
			for i := 0; i < len(got); i += 2 {
				if got[i] != got[i+1] {
					t.Errorf("decision %d: %v, want %v", i/2, got[i], got[i+1])
				}
			}
		})
	}
}

// TestStrict has no questions: the timeout alone finds a lost tail.
func TestStrict(t *testing.T) {
	s := sampled(Attributes{Strict: true})
	if s.Deadline() != full || s.Tick(full-1, 0) != Nothing || s.Tick(full, 0) != Resend {
		t.Errorf("deadline %d", s.Deadline())
	}
	s = sampled(Attributes{Strict: true})
	if s.attr.Timeout = 0; s.Deadline() != Never {
		t.Errorf("deadline %d without a timeout", s.Deadline())
	}
}

// TestQuestionTimes has the bounds of the time between questions.
func TestQuestionTimes(t *testing.T) {
	for name, v := range map[string]struct {
		trips     trips
		timeout   int64
		questions uint8
		want      int64
	}{
		"16 in a timeout":                {trips{smoothed: ms, sampled: true}, full, 5, full / questionParts},
		"4 if the round trip is unknown": {trips{smoothed: ms}, full, 5, full / leastQuestions},
		"a round trip on a slow path":    {trips{smoothed: 200 * ms, sampled: true}, full, 9, 201 * ms},
		"a second without a timeout":     {trips{smoothed: ms, sampled: true}, 0, 20, 1000 * ms},
	} {
		s := Sender{attr: Attributes{Timeout: v.timeout}, trips: v.trips, questions: v.questions, from: 5}
		if got := s.askAt() - 5; got != v.want {
			t.Errorf("%s: after %d µs, want %d", name, got/1000, v.want/1000)
		}
	}
}

func TestTrips(t *testing.T) {
	for name, v := range map[string]struct {
		do   func(s *Sender)
		want int64
	}{
		"first sample":                  {func(s *Sender) { s.Acknowledged(5, 6, true, 3*ms) }, 3 * ms},
		"not acknowledged yet":          {func(s *Sender) { s.Acknowledged(4, 5, true, 3*ms) }, firstTrip},
		"the first measurement stays":   {func(s *Sender) { s.Sent(6, false, true, false, ms); s.Acknowledged(5, 6, true, 3*ms) }, 3 * ms},
		"sent again: no sample":         {func(s *Sender) { s.Sent(5, false, false, true, ms); s.Acknowledged(5, 6, true, 3*ms) }, firstTrip},
		"sent again, with 2 questions":  {func(s *Sender) { s.questions = 2; s.Sent(5, false, false, true, ms); s.Acknowledged(5, 6, true, 3*ms) }, 3 * ms},
		"another one sent again":        {func(s *Sender) { s.Sent(4, false, false, true, ms); s.Acknowledged(5, 6, true, 3*ms) }, 3 * ms},
		"nothing in flight: no sample":  {func(s *Sender) { s.Stopped(ms); s.Acknowledged(5, 6, true, 3*ms) }, firstTrip},
		"a second sample is an eighth":  {func(s *Sender) { s.trips.add(8 * ms); s.trips.add(16 * ms) }, 9 * ms},
		"PSNs around the end of 24 bit": {func(s *Sender) { s.trips.psn = Mask; s.Acknowledged(Mask, 0, true, 3*ms) }, 3 * ms},
	} {
		s := NewSender(Attributes{Timeout: full})
		s.trips.psn, s.trips.start = 5, 0
		s.Sent(5, true, true, false, 1)
		s.trips.start = 1
		v.do(&s)
		if trip, _ := s.Trip(); trip != v.want && trip != v.want-1 {
			t.Errorf("%s: %d, want %d", name, trip, v.want)
		}
	}
}

func TestReceiver(t *testing.T) {
	var r Receiver
	now := int64(1)
	for i, v := range []struct {
		psn, expected uint32
		past          int64
		want          Verdict
	}{
		{Mask, Mask, 0, Execute}, {Mask, 0, 0, Repeat}, {2, 0, 0, NAK}, {3, 0, 0, Drop}, {4, 0, 0, Drop},
		{2, 0, nakInterval, Drop}, {2, 0, 1, NAK}, // the peer has gone back, and packet 0 is lost again
		{3, 0, 0, Drop}, {0, 0, 0, Execute}, {2, 1, 0, NAK},
	} {
		now += v.past
		if got := r.Arrived(v.psn, v.expected, now); got != v.want {
			t.Errorf("packet %d: verdict %d, want %d", i, got, v.want)
		}
	}
	r.Refused(now)
	if r.Arrived(5, 1, now) != Drop || r.Arrived(1, 1, now) != Execute {
		t.Error("packets behind a refused one are reported")
	}
}
