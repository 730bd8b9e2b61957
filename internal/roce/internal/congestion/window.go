// Package congestion decides how many bytes may be in flight on a path in one direction.
//
// The limit doubles in each round trip until the first loss, and grows by a packet in each round trip from then on. It
// is halved for a round trip with loss, once. Congestion notifications reduce it as the reaction point of DCQCN does.
package congestion

import "time"

// PacketCost is added to the size of each packet in flight. It stands for headers and for the system's overhead per
// datagram in a socket buffer.
const PacketCost = 256

// Least is the smallest limit, in bytes: two packets of the largest path MTU. First is the limit before the path is
// known, and Largest that of a path with delay.
const (
	Least   = 2 * (4096 + PacketCost)
	First   = 256 << 10
	Largest = 32 << 20
)

// NotificationInterval is the shortest time between two notifications that count, in nanoseconds.
const NotificationInterval = int64(50 * time.Microsecond)

// gain is the weight of a notification in DCQCN's estimate of the marked packets.
const gain = 1.0 / 16

// longTrip is the round trip from which on a path has delay. The limit may then exceed that of New by a byte for each
// nanosecond of the round trip, since the path itself holds bytes besides the socket buffer of the peer.
const longTrip = int64(time.Millisecond)

// A Window computes the limit. Times are in nanoseconds. It has no lock, and reads no clock.
type Window struct {
	limit, most int64
	slow        int64 // growth is slow from this limit on
	trip        int64 // shortest round trip; 0: not measured
	until       int64 // losses before this time belong to a round trip that was halved for already
	cuts        uint64

	marked     float64 // DCQCN's alpha
	notifiedAt int64   // 0: never
}

// New returns a Window whose limit is at most a number of bytes on a path without delay.
func New(most int64) Window {
	most = max(most, Least)
	return Window{limit: min(most, First), most: most, slow: Largest}
}

// Limit returns the number of bytes that may be in flight.
func (w *Window) Limit() int64 { return w.limit }

// Cuts returns how often the limit was reduced because of loss.
func (w *Window) Cuts() uint64 { return w.cuts }

// Open reports whether the limit is at its largest.
func (w *Window) Open() bool { return w.limit >= w.top() }

// top returns the largest limit.
func (w *Window) top() int64 {
	if w.trip < longTrip {
		return w.most
	}
	return max(w.most, min(w.most+w.trip, Largest))
}

// Measured records a round trip.
func (w *Window) Measured(trip int64) {
	if w.trip == 0 || trip < w.trip {
		w.trip = max(trip, 1)
	}
}

// Arrived records that n bytes of the window arrived, in full packets of a size. It is called only while the window has
// no room for more: a limit that nothing reaches says nothing about the path.
func (w *Window) Arrived(n, size int64) {
	if w.limit < w.slow {
		w.limit += n
	} else {
		w.limit += max(1, n*size/w.limit)
	}
	w.limit = min(w.limit, w.top())
}

// Lost records that packets were lost. trip is the smoothed round trip.
func (w *Window) Lost(now, trip int64) {
	if now < w.until {
		return
	}
	w.until = now + trip
	w.cuts++
	w.limit = max(w.limit/2, Least)
	w.slow = w.limit
}

// Notified records that a congestion notification arrived. The reduction grows with the frequency of notifications.
// trip is the smoothed round trip.
func (w *Window) Notified(now, trip int64) {
	interval := max(trip, NotificationInterval)
	if w.notifiedAt == 0 {
		w.marked = 1
	} else if past := (now - w.notifiedAt) / interval; past == 0 {
		return
	} else {
		for range min(past, 64) {
			w.marked *= 1 - gain
		}
	}
	w.marked = w.marked*(1-gain) + gain
	w.notifiedAt = now
	w.limit = max(int64(float64(w.limit)*(1-w.marked/2)), Least)
	w.slow = w.limit
}
