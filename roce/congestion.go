package roce

import "math"

// congestion computes the limit of a [window]. A window that is paced follows
// a [pathModel] instead, and has only the rounds and the reaction to notifications from here.
//
// The limit grows while no packets are lost. At first it doubles in each round trip.
// After the first congestion it grows by a fraction of itself per round trip; the
// fraction rises with the time since the last loss.
//
// Loss alone is not taken for congestion, because a line may lose packets at any rate. A
// cut of the limit is therefore an experiment. After a cut, the next round is compared
// with the round before it:
//
//   - The delivery rate is unchanged: the larger window was useless. The cut stays.
//   - The loss is lower: the window was too large. The cut stays.
//   - The loss is the same and the delivery rate is lower: the line itself loses packets. The
//     cut is undone, and for a while a loss up to this rate counts as the line's own.
//
// A round lasts at least one round trip and at least minRound packets.
//
// The last case has a second possible cause: another sender, for example one of TCP, takes the
// capacity that the cut has freed. The queue then overflows as before, so that the loss is the same
// and the delivery rate is lower. The experiment cannot tell this from a line that loses packets.
//
// A window for requests (yields) whose limit is at most shortQueue therefore makes a second
// comparison. It is so small that, if there is a queue, the queue is short. The window compares the
// mean loss of rounds with a small limit with that of rounds with a large limit. A line loses the
// same share of the packets with any limit. A queue that overflows loses fewer packets with a smaller
// limit. A small difference does not show a queue, because a line that loses packets in bursts has
// rounds with little loss, too; differs is the ratio that does.
//
// Such a window also has other constants, with which it shares a short queue with TCP. It grows more
// slowly. A cut reduces its limit at least by the fraction of the packets that was lost. A round ends
// before minRound packets if it has already lost more than a whole round may lose.
//
// A window that yields, with a limit of at most shortQueue, takes at most the loss rate shortLoss for
// that of the line. On a line that loses more, each round would cut the window, down to its minimum for
// good. But a window with a limit of about the minimum overflows no queue so often. If its mean loss rate
// over lowRounds rounds is above shortLoss, that rate is the line's own.
type congestion struct {
	slow int64 // slow-start threshold: growth is slow from this limit on

	rtt int64 // last smoothed round trip of a QP; 0: none was measured

	// The current round.
	start      int64 // time of its start; 0: it starts with the next packet
	delivered  int64 // bytes
	packets    int64 // delivered
	lost       int64 // packets
	settling   bool  // the limit was just changed: this round is not measured
	restricted bool  // the window was full at some time in the round

	// The current experiment: the limit, the loss and the rate before the cut.
	testing    bool
	beforeCut  int64
	lossBefore float64
	rateBefore float64

	lineLoss        float64 // loss rate that counts as the line's own
	lineLossRounds  int     // rounds for which lineLoss remains valid
	smallRounds     int     // consecutive rounds with about the smallest window
	smallLossSum    float64 // sum of their loss rates
	smallLoss       float64 // mean of those, if it is the line's own
	smallLossRounds int     // rounds for which smallLoss remains valid

	yields bool    // a short queue is shared with others: the window is for requests
	mean   float64 // mean limit of the last rounds
	below  float64 // mean loss of rounds with a limit up to mean
	above  float64 // and beyond it
	loss   float64 // mean loss of the last rounds

	alpha float64 // DCQCN's estimate of the fraction of marked packets
	cnpAt int64   // time of the last reduction for a notification

	lastLoss       float64 // loss rate of the last measured round
	best           float64 // highest delivery rate of the last rounds, in bytes per nanosecond
	quiet          int     // consecutive rounds without congestion
	cuts, restored uint64
}

const (
	minRound     = 128  // packets
	lossTolerant = 0.02 // loss rate that does not count as congestion
	mostLoss     = 0.45 // above this loss rate a cut is never undone
	floorRounds  = 64
	cutFactor    = 0.75 // of the limit remains
	dcqcnG       = 1.0 / 16

	// Slow growth adds limit/growPart per round trip, and at least growLeast packets. On a
	// path with a long round trip it adds at least growLeastLong packets, and up to
	// limit/growFastest after rounds without loss.
	growPart      = 48
	growLeast     = 1
	growLeastLong = 2
	growFastest   = 3

	// A window that yields has a short queue if its limit is at most shortQueue. It grows by
	// 1/shortGrow of a packet per round trip there.
	shortQueue = 40 << 10
	shortGrow  = 3
	shortCut   = 0.8  // cutFactor with a short queue, if no larger part was lost
	shortLoss  = 0.18 // most loss that counts as a line's, with a short queue
	differs    = 0.6  // ratio of below to above from which on loss does not depend on the limit
	meanRounds = 8    // rounds of the means
	lowRounds  = 8    // rounds with about the smallest window that show the line's own loss

	hardlyAny = 0.001 // mean loss rate that is taken for none
)

// onDelivered records that n bytes in packets arrived. It returns the new limit of the
// window, at most top; limit is the present one. long says that the path has delay.
func (c *congestion) onDelivered(now, rtt, n, packets, limit, top int64, long bool) int64 {
	c.delivered += n
	c.packets += packets
	// An experiment needs a constant limit. On a path with a long round trip growth is so
	// slow that it does not disturb one.
	held := !long && (c.testing || c.settling)
	if limit < top && c.restricted && !held {
		if limit < c.slow {
			limit += n
		} else {
			divisor, least := int64(growPart), int64(growLeast)
			if long {
				divisor, least = max(divisor>>min(c.quiet/2, 8), growFastest), growLeastLong
			}
			packet := n / max(packets, 1)
			if c.sharesQueue(limit) {
				packet /= shortGrow
			}
			part := max(limit/divisor, least*packet)
			limit += max(1, n*part/limit)
		}
		limit = min(limit, top)
	}
	return c.round(now, rtt, limit)
}

// onPaced is onDelivered for a window with pacing, on a path with delay: its model gives the limit.
func (w *window) onPaced(now, rtt, n, packets, limit, top int64) int64 {
	if w.start == 0 {
		w.start, w.delivered, w.packets = now, 0, 0
	} else {
		w.delivered += n
		w.packets += packets
	}
	if length := now - w.start; length >= max(rtt, w.path.trip) {
		loss := float64(w.lost) / float64(max(1, w.packets+w.lost))
		w.path.ended(float64(w.delivered)/float64(length), loss, w.restricted || w.lost > 0)
		if w.packets+w.lost >= minRound {
			w.lastLoss = loss
		}
		w.start, w.delivered, w.packets, w.lost = now, 0, 0, 0
		w.restricted = false
	}
	w.path.expired(now)
	if !w.restricted {
		n = 0
	}
	return max(min(w.path.window(limit, n), top), minWindow)
}

// clean reports whether the last measured round had no loss, and no loss or experiment is
// pending. A window for READ responses is clean only when the mean loss has become small, too,
// because the length of a READ's parts follows it.
func (c *congestion) clean() bool {
	return !c.testing && !c.settling && c.lost == 0 && c.packets == 0 && c.lastLoss == 0 && (c.yields || c.loss < hardlyAny)
}

// onLost records that packets were lost, and returns the new limit of the window.
func (c *congestion) onLost(now, rtt, packets, limit int64) int64 {
	c.lost += packets
	return c.round(now, rtt, limit)
}

// roundTrip records the smoothed round trip rtt of a QP, unless it is 0, and returns the one that was
// recorded last.
func (c *congestion) roundTrip(rtt int64) int64 {
	if rtt != 0 {
		c.rtt = rtt
	}
	return c.rtt
}

// round ends the current round if it has lasted long enough, and returns the new limit.
func (c *congestion) round(now, rtt, limit int64) int64 {
	if c.start == 0 {
		c.start = now
	}
	length, tolerated := now-c.start, c.tolerated(limit)
	few := c.lost < 3
	trip := rtt
	if rtt == 0 {
		trip = firstRTT
	}
	switch {
	case length < trip:
		return limit
	case c.packets+c.lost >= minRound || length >= 20*trip:
	case !c.sharesQueue(limit):
		return limit
	case c.settling:
		if length < 2*trip {
			return limit
		}
	case few || float64(c.lost) <= tolerated*minRound:
		return limit
	}
	loss := float64(c.lost) / float64(max(1, c.packets+c.lost))
	rate := float64(c.delivered) / float64(max(1, length))
	c.lastLoss = loss
	c.best = max(rate, 0.95*c.best)
	if few && loss <= tolerated {
		c.quiet++
	} else {
		c.quiet = 0
	}
	settling := c.settling
	c.start, c.delivered, c.packets, c.lost = now, 0, 0, 0
	c.settling, c.restricted = false, false
	if settling {
		return limit
	}
	c.compare(float64(limit), loss)
	if c.lineLossRounds > 0 {
		c.lineLossRounds--
	} else {
		c.lineLoss = 0
	}
	c.lowest(limit, loss)
	if c.testing {
		c.testing = false
		if loss >= c.lossBefore/2 && loss <= mostLoss && rate < 0.9*c.rateBefore {
			c.restored++
			c.lineLoss, c.lineLossRounds = loss, floorRounds
			c.settling = true
			return max(limit, min(c.beforeCut, product(1.25*c.rateBefore, rtt)))
		}
	}
	if few || loss <= c.tolerated(limit) {
		return limit
	}
	c.cuts++
	c.testing, c.settling = true, true
	c.beforeCut, c.lossBefore, c.rateBefore = limit, loss, rate
	part := cutFactor
	if c.sharesQueue(limit) {
		part = min(shortCut, 1-loss)
	}
	limit = max(min(int64(part*float64(limit)), product(c.best, rtt)), minWindow)
	c.slow = limit
	return limit
}

// product returns the bytes that a delivery rate delivers in a round trip. That is the capacity of the
// path and its queue. Before the first sample of a round trip nothing is known of it, and product returns
// no limit: with a guess, a slow host would reduce a large window to a few packets.
func product(rate float64, rtt int64) int64 {
	if rtt == 0 {
		return math.MaxInt64
	}
	return int64(rate * float64(rtt))
}

// sharesQueue reports whether a window of this limit fills a short queue that it shares with others.
func (c *congestion) sharesQueue(limit int64) bool { return c.yields && limit <= shortQueue }

// tolerated returns the loss rate up to which a round counts as free of congestion.
func (c *congestion) tolerated(limit int64) float64 {
	switch {
	case !c.sharesQueue(limit):
		return lossTolerant + 1.5*max(c.lineLoss, c.smallLoss)
	case c.smallLoss > 0:
		return lossTolerant + 1.5*c.smallLoss
	case c.below < differs*c.above:
		return lossTolerant // the queue loses the packets
	}
	return min(lossTolerant+1.5*c.lineLoss, shortLoss)
}

// lowest records a round, and finds out whether the line itself loses more than shortLoss.
func (c *congestion) lowest(limit int64, loss float64) {
	if !c.yields {
		return
	}
	if c.smallLossRounds > 0 {
		c.smallLossRounds--
	} else {
		c.smallLoss = 0
	}
	if limit > 2*minWindow {
		c.smallRounds, c.smallLossSum = 0, 0
		return
	}
	c.smallRounds++
	c.smallLossSum += loss
	if mean := c.smallLossSum / float64(c.smallRounds); c.smallRounds >= lowRounds && mean > shortLoss {
		c.smallLoss, c.smallLossRounds = mean, floorRounds
	}
}

// compare records the loss of a round, for the comparison of smaller with larger limits.
func (c *congestion) compare(limit, loss float64) {
	if c.mean == 0 {
		c.mean, c.below, c.above, c.loss = limit, loss, loss, loss
		return
	}
	if limit <= c.mean {
		c.below += (loss - c.below) / meanRounds
	} else {
		c.above += (loss - c.above) / meanRounds
	}
	c.loss += (loss - c.loss) / meanRounds
	c.mean += (limit - c.mean) / meanRounds
}

// onCNP reduces the limit after a congestion notification, as DCQCN's reaction point
// does: the reduction grows with the frequency of notifications. It returns the new
// limit.
func (c *congestion) onCNP(now, rtt, limit int64) int64 {
	interval := max(rtt, cnpInterval)
	if c.cnpAt != 0 && now-c.cnpAt < interval {
		return limit
	}
	intervals := int64(0)
	if c.cnpAt != 0 {
		intervals = min((now-c.cnpAt)/interval, 64)
	} else {
		c.alpha = 1
	}
	for range intervals {
		c.alpha *= 1 - dcqcnG
	}
	c.alpha = c.alpha*(1-dcqcnG) + dcqcnG
	c.cnpAt = now
	c.testing = false
	limit = max(int64(float64(limit)*(1-c.alpha/2)), minWindow)
	c.slow = limit
	return limit
}
