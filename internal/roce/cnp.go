package roce

import "github.com/softmkey/softmkey/internal/roce/internal/congestion"

// notifier decides when a QP answers packets with a congestion mark by a congestion
// notification packet (CNP).
type notifier struct {
	due bool  // a CNP is to be sent
	at  int64 // time at which due was last set; 0: never
}

// marked records that a packet arrived with a congestion mark.
func (c *notifier) marked(now int64) {
	if c.at == 0 || now-c.at >= congestion.NotificationInterval {
		c.due, c.at = true, now
	}
}

// sent records that the CNP was sent, or that none is needed.
func (c *notifier) sent() { c.due = false }
