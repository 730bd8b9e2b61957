package roce

// congestion decides how much may be in flight to one peer. It belongs to a [window] and
// is guarded by its lock.
//
// The window grows while nothing is lost: it doubles within a round trip at first, and
// grows by a part of itself per round trip after the first congestion, which is the
// larger the longer nothing was lost. Loss alone is no
// sign of congestion: a line may lose packets whatever is sent. So a cut of the window is
// an experiment. After a cut, the next rounds are compared with the rounds before it:
//
//   - The rate of delivery is as before: the larger window was of no use. It stays cut.
//   - Less is lost: the window was too large. It stays cut.
//   - As much is lost as before, and less is delivered: the line loses packets by itself.
//     The cut is taken back, and that rate of loss counts as the line's own for a while.
//
// A round is at least one round trip and at least minRound packets.
type congestion struct {
	slow int64 // from this limit on, growth is slow

	// The round that is being measured.
	start      int64 // when it began; 0: with the next packet
	delivered  int64 // bytes
	packets    int64 // delivered
	lost       int64 // packets
	settling   bool  // the limit was just changed: this round is not measured
	restricted bool  // the window was full at some time in it

	// The experiment under way: the limit, loss and rate before the cut.
	testing    bool
	beforeCut  int64
	lossBefore float64
	rateBefore float64

	floor     float64 // the loss that counts as the line's own
	floorLeft int     // rounds for which it counts

	alpha float64 // DCQCN's estimate of the fraction of marked packets
	cnpAt int64   // when the last notification was answered

	lastLoss       float64 // of the last round
	best           float64 // rate of delivery, of the last rounds
	quiet          int     // rounds without congestion, one after the other
	cuts, restored uint64
}

const (
	minRound     = 64   // packets
	lossTolerant = 0.02 // loss that does not count as congestion
	mostLoss     = 0.45 // a path that loses more is always taken for congested
	floorRounds  = 200
	cutFactor    = 0.75
	growPart     = 48 // slow growth is this part of the window per round trip, ...
	growLeast    = 2  // ... at least so many packets, ...
	growFastest  = 3  // ... and up to this part after rounds without loss on a path with delay
	dcqcnG       = 1.0 / 16
)

// onDelivered takes n bytes in packets that arrived. limit is the window; it returns the
// new one, which is not above top.
func (c *congestion) onDelivered(now, rtt, n, packets, limit, top int64) int64 {
	c.delivered += n
	c.packets += packets
	if limit < top && c.restricted {
		if limit < c.slow {
			limit += n
		} else {
			divisor := int64(growPart)
			if rtt >= longRTT {
				divisor = max(divisor>>min(c.quiet/2, 8), growFastest)
			}
			part := max(limit/divisor, growLeast*n/max(packets, 1))
			limit += max(1, n*part/limit)
		}
		limit = min(limit, top)
	}
	return c.round(now, rtt, limit)
}

// clean reports whether the round that was last measured lost nothing and none is under
// test.
func (c *congestion) clean() bool {
	return !c.testing && !c.settling && c.lost == 0 && c.packets == 0 && c.lastLoss == 0
}

// onLost takes packets that were found to be lost.
func (c *congestion) onLost(now, rtt, packets, limit int64) int64 {
	c.lost += packets
	return c.round(now, rtt, limit)
}

// round ends a round, if it is long enough, and returns the window for the next.
func (c *congestion) round(now, rtt, limit int64) int64 {
	if c.start == 0 {
		c.start = now
	}
	length := now - c.start
	if length < rtt || c.packets+c.lost < minRound && length < 20*rtt {
		return limit
	}
	loss := float64(c.lost) / float64(max(1, c.packets+c.lost))
	rate := float64(c.delivered) / float64(max(1, length))
	few := c.lost < 3
	c.lastLoss = loss
	c.best = max(rate, 0.95*c.best)
	if few && loss <= lossTolerant+1.5*c.floor {
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
	if c.floorLeft > 0 {
		c.floorLeft--
	} else {
		c.floor = 0
	}
	if c.testing {
		c.testing = false
		if loss >= c.lossBefore/2 && loss <= mostLoss && rate < 0.9*c.rateBefore {
			c.restored++
			c.floor, c.floorLeft = loss, floorRounds
			c.settling = true
			return max(limit, min(c.beforeCut, int64(1.25*c.rateBefore*float64(rtt))))
		}
	}
	if few || loss <= lossTolerant+1.5*c.floor {
		return limit
	}
	c.cuts++
	c.testing, c.settling = true, true
	c.beforeCut, c.lossBefore, c.rateBefore = limit, loss, rate
	// The rate times the round trip is what the path and its queue hold.
	limit = max(min(int64(cutFactor*float64(limit)), int64(c.best*float64(rtt))), minWindow)
	c.slow = limit
	return limit
}

// onCNP answers a congestion notification as DCQCN's reaction point does: by a part of
// the window that follows how often notifications come. It returns the new limit.
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
