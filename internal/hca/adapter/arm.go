package adapter

import (
	"errors"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

// arming is the part of a CQ that raises completion events: one event for each arm, and only
// for a completion that came since the last event. The CQ's lock guards it.
type arming struct {
	word      uint32 // the arm record, as read last
	hint      uint64 // the UAR's arm register, as read last
	armed     bool
	lost      bool  // the arm record cannot be read; this was reported as a refusal
	solicited bool  // the event is armed for solicited and failed completions only
	spent     uint8 // arm sequence number for which the last event was raised; noSequence before the first
	from      uint32
	last      uint32 // CQ.producer at the last event
	urgent    uint32 // CQ.producer after the last solicited or failed completion

	// Moderation.
	count  uint32
	period time.Duration
	timer  *time.Timer
}

const noSequence = 0xff

func (a *arming) init() { a.word, a.spent = unarmedArm, noSequence }

func (a *arming) stop() {
	a.armed = false
	if a.timer != nil {
		a.timer.Stop()
	}
}

// completed raises the event that is due for a completion. q.mu is held.
func (q *CQ) completed(solicited bool) {
	if solicited {
		q.arm.urgent = q.producer
	}
	if !q.arm.armed {
		q.lookAtArm()
		return // takeArm has checked for due events
	}
	q.raiseDue()
}

// lookAtArm reads the arm record if the program may have written it. q.mu is held.
func (q *CQ) lookAtArm() {
	if u := q.attr.UAR; u != nil {
		hint := u.armHint()
		if hint == q.arm.hint {
			return
		}
		q.arm.hint = hint
	}
	w, err := q.db.load32(prm.DoorbellArm)
	if err != nil {
		q.lostRecord(err)
		return
	}
	q.takeArm(w)
}

// lostRecord records once that the arm record cannot be read, so that arming the CQ has no
// effect. q.mu is held.
func (q *CQ) lostRecord(err error) {
	if q.arm.lost || q.closed.Load() || errors.Is(err, syscall.ESRCH) {
		return
	}
	q.arm.lost = true
	q.ctx.refused("cq", q.number, "arm", &operr.Error{Op: "arm the CQ", Errno: syscall.EFAULT, Reason: "the doorbell record cannot be read", Err: err})
}

// sawArm takes the CQ's arm word, which was read in one batch with the context's other records.
func (q *CQ) sawArm(w uint32) (worked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeArm(w)
}

// takeArm takes the arm word, and raises an event at once if a completion came before it.
// q.mu is held.
func (q *CQ) takeArm(w uint32) (worked bool) {
	a := &q.arm
	if w == a.word || q.closed.Load() {
		return false
	}
	a.word = w
	arm := prm.ParseArm(w)
	if arm.Sequence == a.spent {
		return false // the program armed the CQ before it fetched the last event
	}
	// An arm for solicited completions does not take back one for all that is outstanding. Where
	// the program writes both between two looks at the record, only the second one is seen.
	a.armed, a.solicited = true, arm.Solicited && (!a.armed || a.solicited)
	// Completions that the program had polled when it armed the CQ, and those of the
	// last event, raise no event.
	behind := (q.producer - arm.CI) & 0xffffff
	if behind > 1<<23 {
		behind = 0 // ahead of the written completions: none was missed
	}
	a.from = q.producer - behind
	if int32(a.last-a.from) > 0 {
		a.from = a.last
	}
	q.raiseDue()
	return true
}

// raiseDue raises the event if the CQ is armed and a completion counts for it. q.mu is
// held.
func (q *CQ) raiseDue() {
	a := &q.arm
	upTo := q.producer
	if a.solicited {
		upTo = a.urgent
	}
	n := int32(upTo - a.from)
	if !a.armed || n <= 0 {
		return
	}
	if a.count > 1 && a.period > 0 && uint32(n) < a.count {
		if a.timer == nil {
			a.timer = time.AfterFunc(a.period, q.moderated)
		}
		return
	}
	q.raise()
}

// moderated runs when the moderation period of an event has passed.
func (q *CQ) moderated() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.arm.timer != nil && q.arm.armed {
		q.raise()
	}
}

func (q *CQ) raise() {
	a := &q.arm
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	a.armed = false
	a.spent = prm.ParseArm(a.word).Sequence
	a.last = q.producer
	q.ctx.events.push(event{cq: q, dead: q.closed.Load})
}
