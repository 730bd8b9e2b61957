package roce

import (
	"github.com/softmkey/softmkey/internal/ibv"
)

// workList is the outstanding Work of a requester, and the position of sending in it.
//
// These PSNs describe it; in circular order una <= next <= high and next <= end:
//
//	una   the oldest unacknowledged packet, in the first Work of the list (SND.UNA of RFC 9293)
//	next  the next packet to send, in cur (SND.NXT)
//	high  one after the last packet that was ever sent; after a loss, next goes back (HighData of RFC 6675, plus 1)
//	end   the first packet of the next Work to begin
//
// A READ takes one PSN for each response packet. Its request is one packet, for any
// length, unless it is sent in parts, which are a Work each. A repeated request asks for missing
// responses only.
type workList struct {
	head, tail *Work // outstanding Work, in order
	cur        *Work // the Work that contains next; nil: all outstanding Work was sent
	una        uint32
	next       uint32
	high       uint32
	end        uint32
	inFlight   int32 // READs and atomics in [una, next)
	stopped    bool  // no more Work is begun, because one is about to fail

	whole *Work // a READ of which more parts are to begin; nil: none
}

func (l *workList) init(psn uint32) { *l = workList{una: psn, next: psn, high: psn, end: psn} }

// add appends w. If it has packets, they are sent next.
func (l *workList) add(w *Work) {
	if l.head == nil {
		l.head = w
	} else {
		l.tail.progress.next = w
	}
	l.tail = w
	if w.progress.count != 0 {
		l.cur = w
		l.end = psnAdd(l.end, int(w.progress.count))
	}
}

// pop removes and returns the first Work.
func (l *workList) pop() *Work {
	w := l.head
	l.head = w.progress.next
	if l.head == nil {
		l.tail = nil
	}
	w.progress.next = nil
	return w
}

// popWhole removes and returns the first Work. If it is a part of a READ, popWhole removes the other
// parts, too, and returns the READ. It returns nil if the list is empty.
func (l *workList) popWhole() *Work {
	if l.head == nil {
		w := l.whole // no part of it is outstanding
		l.whole = nil
		return w
	}
	w := l.pop()
	whole := w.progress.whole
	if whole == nil {
		return w
	}
	whole.progress.again += w.progress.again
	for l.head != nil && l.head.progress.whole == whole {
		whole.progress.again += l.pop().progress.again
	}
	if l.whole == whole {
		l.whole = nil
	}
	return whole
}

// ended returns the Work that has completed with w, which was removed from the list: w itself, or
// the READ of which w was the last part. It returns nil if w was another part.
func (l *workList) ended(w *Work) *Work {
	whole := w.progress.whole
	if whole == nil {
		return w
	}
	whole.progress.again += w.progress.again
	if whole.index(w.progress.first)+w.progress.count != whole.progress.count {
		return nil
	}
	return whole
}

// stop lets no more Work begin. leave also ends the sending of what has begun.
func (l *workList) stop() { l.stopped = true }

func (l *workList) leave() {
	l.stopped, l.cur = true, nil
	l.next, l.inFlight = l.una, 0
}

// sent records that the next n PSNs were sent, which belong to w. last means that they are
// the last ones of w.
func (l *workList) sent(w *Work, n int, last bool) {
	if w.hasResponses() {
		l.inFlight++
	}
	l.next = psnAdd(l.next, n)
	raise(&l.high, l.next)
	if last {
		l.cur = w.progress.next.sendable()
	}
}

// pass moves una past n PSNs.
func (l *workList) pass(n int) { l.una = psnAdd(l.una, n) }

// answeredLast records that the last response to a READ or atomic that is in flight arrived.
func (l *workList) answeredLast() { l.inFlight-- }

// goBack makes una the next packet to send.
func (l *workList) goBack() {
	l.inFlight = 0
	l.seek()
}

// catchUp moves next up to una, if packets that were about to be retransmitted have been
// acknowledged.
func (l *workList) catchUp() {
	if psnDiff(l.una, l.next) > 0 {
		l.seek()
	}
}

func (l *workList) seek() { l.next, l.cur = l.una, l.head.sendable() }

// index returns the position of PSN p in w, in packets.
func (w *Work) index(p uint32) uint32 { return (p - w.progress.first) & psnMask }

// hasResponses reports whether responses complete w, rather than acknowledgements.
func (w *Work) hasResponses() bool {
	return w.Op == ibv.WRRead || w.Op.Atomic()
}

// sendable returns w, or the first Work after it, that has packets; nil if there is none.
func (w *Work) sendable() *Work {
	for w != nil && w.progress.count == 0 {
		w = w.progress.next
	}
	return w
}
