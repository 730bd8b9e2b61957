package loss

import "time"

// Attributes are those of a queue pair that decide when its sender gives up.
type Attributes struct {
	Timeout    int64 // local ACK timeout; 0: none
	Retries    uint8 // timeouts without progress before the sender gives up
	RNRRetries uint8 // RNR NAKs without progress before it gives up; 7: no limit

	// Strict leaves out the questions: a lost tail is found by the timeout alone.
	Strict bool
}

// Action is what a sender does.
type Action uint8

// The actions. Una is the oldest packet without an acknowledgement.
const (
	Nothing Action = iota
	Resend         // go back to una
	Ask            // send una once more, to learn how far the peer has got
	Fail           // the retries are used up
)

// A Sender decides when packets are sent again. It is told of each event; una and next are the oldest packet without an
// acknowledgement, and the next one to be sent.
//
// Lost packets show in three ways: the peer reports a gap (Gap), nothing is acknowledged for a whole timeout, or nothing
// for about one round trip. In the last case the loss is the last packets, of which the peer knows nothing, or the answer.
// The sender then asks, without using up a retry, and again after twice the time. Adapters call this adaptive
// retransmission.
type Sender struct {
	attr    Attributes
	left    uint8 // timeouts that remain
	rnrLeft uint8
	starved bool  // a timeout was prolonged because its timer fired late
	since   int64 // start of the wait for una, or end of the last timeout
	paused  int64 // time since which nothing is in flight

	advanced int64 // time at which una last advanced

	from      int64 // start of the wait for the next question
	questions uint8 // since una last advanced
	asked     int64 // time of the first of them; 0: there is none
	gapAt     int64 // time at which the loss of una was handled; 0: none was reported
	trips     trips
	answer    Answer
	answered  int64 // time of answer; 0: there is none
}

// Answer describes a response, for the text of an error.
type Answer struct {
	PSN  uint32 // that the peer expects next, or that of a READ response
	Data bool   // it is a READ response
}

// NewSender returns the Sender of a connection on which nothing was sent.
func NewSender(a Attributes) Sender {
	return Sender{attr: a, left: a.Retries, rnrLeft: a.RNRRetries, trips: newTrips()}
}

// Trip returns the smoothed round trip, and whether one was measured. Before that it is a guess.
func (s *Sender) Trip() (trip int64, measured bool) { return max(s.trips.smoothed, 1), s.trips.sampled }

// Sent records that packet psn is sent, which is next. starts says that nothing else is in flight, measures that its
// response comes at once, and again that it was sent before.
func (s *Sender) Sent(psn uint32, starts, measures, again bool, now int64) {
	if starts {
		s.since += now - s.paused // the time since the last packet was in flight does not count
		s.from = now
	}
	switch {
	case again:
		s.trips.doubt = s.trips.doubt || s.trips.psn == psn
	case measures && s.trips.start == 0:
		s.trips.psn, s.trips.start, s.trips.doubt = psn, now, false
	}
}

// Stopped records that nothing is in flight any more, because una is to be sent again.
func (s *Sender) Stopped(now int64) {
	s.paused, s.trips.start = now, 0
}

// Acknowledged records that una has advanced. more says that later packets are in flight. It returns the sample of a round trip, or 0, and Resend if exactly
// the question was acknowledged, although there are more: they were lost. An answer that comes sooner than half a round
// trip is that to the first transmission.
func (s *Sender) Acknowledged(before, una uint32, more bool, now int64) (sample int64, do Action) {
	sample = s.trips.acknowledged(una, s.questions, now)
	if s.asked != 0 && more && Diff(una, before) == 1 && s.trips.sampled && now-s.asked >= s.trips.smoothed/2 {
		do = Resend
	}
	s.Renew(now)
	s.rnrLeft = s.attr.RNRRetries
	s.advanced, s.from, s.questions, s.asked, s.gapAt = now, now, 0, 0, 0
	return sample, do
}

// Renew renews the retries and restarts the timeout.
func (s *Sender) Renew(now int64) { s.left, s.since, s.paused = s.attr.Retries, now, now }

// Answered records what the peer's last response says.
func (s *Sender) Answered(a Answer, now int64) { s.answer, s.answered = a, now }

// LastAnswer returns the last response, and whether it arrived during the last timeout.
func (s *Sender) LastAnswer() (a Answer, ok bool) { return s.answer, s.answered > s.since }

// Gap records that a response shows the loss of una. All packets in flight after a lost one show it, too. So it is
// handled on the first report, and then once in a round trip, because the packet may be lost again.
func (s *Sender) Gap(now int64) Action {
	if s.gapAt != 0 && now-s.gapAt < s.trips.timeout() {
		return Nothing
	}
	s.gapAt = now
	return Resend
}

// NotReady records an RNR NAK for una. The caller waits before it sends una again.
func (s *Sender) NotReady(now int64) Action {
	s.Renew(now)
	switch s.rnrLeft {
	case 7: // no limit
	case 0:
		return Fail
	default:
		s.rnrLeft--
	}
	return Resend
}

// Waits restarts the waits for the next question and for the timeout, because the peer is sending responses of a READ
// that was requested more than once. A slow peer answers one copy after the other before it reaches una. The timeout is
// put off for at most mostCopies timeouts, so that a peer that sends nothing else does not hold the sender for ever.
func (s *Sender) Waits(now int64) {
	if s.from = now; now < s.advanced+mostCopies*s.attr.Timeout {
		s.since = now
	}
}

const mostCopies = 8

// Parts of a timeout. Questions come at least leastQuestions times in a timeout before a round trip is known. After that
// they come at least questionParts times, but never sooner than a round trip. A timer that is late by more than a timeout's lateParts is a sign that the process did not run.
const (
	leastQuestions = 4
	questionParts  = 16
	lateParts      = 8
)

// askAt returns the time of the next question.
func (s *Sender) askAt() int64 {
	if s.attr.Strict {
		return Never
	}
	wait, limit := s.trips.timeout(), int64(time.Second)
	if full := s.attr.Timeout; full != 0 {
		limit = full / questionParts
		if !s.trips.sampled {
			limit = full / leastQuestions // the round trip may be long
			wait = min(wait, limit)
		}
	}
	return s.from + max(wait, min(wait<<min(s.questions, 16), limit))
}

// Deadline returns the time of the next Tick while packets are in flight, or Never.
func (s *Sender) Deadline() int64 {
	at := s.askAt()
	if s.attr.Timeout != 0 {
		at = min(at, s.since+s.attr.Timeout)
	}
	return at
}

// Postpone begins the timeout anew, because the peer is known not to have run since it began: on a busy machine a process
// may get no processor for longer than all timeouts together, while an adapter would have answered.
func (s *Sender) Postpone(now int64) { s.since = now }

// Tick is called at the deadline while packets are in flight, or late ns after it.
func (s *Sender) Tick(now, late int64) Action {
	full := s.attr.Timeout
	if full == 0 || now < s.since+full {
		if now < s.askAt() {
			return Nothing
		}
		if s.from = now; s.asked == 0 {
			s.asked = now
		}
		s.questions++
		return Ask
	}
	if late > full/lateParts && !s.starved {
		// This process did not run for a while. Answers may wait in the socket, and the timer must not count before
		// they are read.
		s.starved = true
		s.since = now - full + min(late, full)
		return Nothing
	}
	s.starved = false
	if s.left == 0 {
		return Fail
	}
	s.left--
	s.since, s.from, s.asked, s.gapAt = now, now, 0, 0
	return Resend
}
