package roce

// gap records the loss that a standard peer reported last, so that each loss is handled
// once: all packets in flight after a lost one report it, too.
type gap struct {
	psn uint32 // packet that was lost
	at  int64  // time at which its loss was handled; 0: it was acknowledged, or none was lost
}

// close records that una advanced, or that a full timeout passed.
func (g *gap) close() { g.at = 0 }

// reported records that a response reported the loss of una. It reports whether
// to handle the loss: on the first report, and then once per round trip,
// because the retransmission may be lost, too.
func (g *gap) reported(una uint32, timeout, now int64) bool {
	if g.at != 0 && g.psn == una && now-g.at < timeout {
		return false
	}
	g.psn, g.at = una, now
	return true
}
