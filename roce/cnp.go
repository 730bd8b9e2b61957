package roce

// notifier decides when a QP answers packets with a congestion mark by a congestion
// notification packet (CNP).
type notifier struct {
	due bool  // send a CNP
	at  int64 // time at which the last one became due; 0: never
}

// cnpInterval is the shortest time between two congestion notifications of one QP.
const cnpInterval = 50e3 // ns

// marked records that a packet arrived with a congestion mark.
func (c *notifier) marked(now int64) {
	if c.at == 0 || now-c.at >= cnpInterval {
		c.due, c.at = true, now
	}
}

// sent records that the CNP was sent, or is not needed.
func (c *notifier) sent() { c.due = false }
