package roce

// gap records the loss that a standard peer reported last, so that each loss is handled
// once: all packets in flight after a lost one report it, too.
type gap struct {
	psn       uint32 // packet that was lost
	request   uint32 // PSN of the last request that the peer has reported missing
	at        int64  // time at which the loss of psn was handled; 0: psn was acknowledged, or none was lost
	requestAt int64  // time at which the loss of request was handled; 0: none was lost
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

// refused records that the peer reported that request psn is missing, while responses of earlier
// requests are, too. It reports whether to handle that: once per round trip, as reported does. The
// peer learns of the loss of another request only after it has received this one, so trip, the
// shortest round trip, limits reports with other PSNs.
func (g *gap) refused(psn uint32, trip, timeout, now int64) bool {
	if since := now - g.requestAt; g.requestAt != 0 && (since < trip/2 || g.request == psn && since < timeout) {
		return false
	}
	g.request, g.requestAt = psn, now
	return true
}
