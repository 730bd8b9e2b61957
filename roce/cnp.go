package roce

// notifier decides when a QP answers packets with a congestion mark by a congestion
// notification packet (CNP).
type notifier struct {
	due bool  // a CNP is to be sent
	at  int64 // time at which due was last set; 0: never
}

// cnpInterval is the shortest time between two congestion notifications of one QP.
const cnpInterval = 50e3 // ns

// marked records that a packet arrived with a congestion mark.
func (c *notifier) marked(now int64) {
	if c.at == 0 || now-c.at >= cnpInterval {
		c.due, c.at = true, now
	}
}

// sent records that the CNP was sent, or that none is needed.
func (c *notifier) sent() { c.due = false }
