package roce

// gap records the loss that a standard peer reported last, so that each loss is handled
// once: all packets in flight after a lost one report it, too.
type gap struct {
	open      bool // packet psn was lost and has not been acknowledged
	restarted bool // PSNs of responses went back to before psn: the peer has started to answer again
	psn       uint32
	high      uint32 // PSN of the last response that arrived before the response of psn
	at        int64  // time at which the loss was handled
}

// close records that una advanced, or that a full timeout passed.
func (g *gap) close() { g.open = false }

// reported records that a response reported the loss of una. It reports whether
// to handle the loss: on the first report, and then once per round trip,
// because the retransmission may be lost, too.
func (g *gap) reported(una uint32, timeout, now int64) bool {
	if g.open && g.psn == una && now-g.at < timeout {
		return false
	}
	g.open, g.psn, g.at = true, una, now
	return true
}

// overtaken records that response psn arrived while the response of una is
// missing. It reports whether the response of una is to be requested again.
//
// Peers answer in the order of the requests. All responses that were requested before una
// was requested again come first, and a READ may have thousands. So una is lost once more
// only if the PSNs start again without it.
func (g *gap) overtaken(una, psn uint32, timeout, now int64) bool {
	if g.open && g.psn == una {
		g.restarted = g.restarted || psnDiff(psn, g.high) <= 0
		g.high = psn
		if !g.restarted || now-g.at < timeout {
			return false
		}
	}
	*g = gap{open: true, psn: una, at: now, high: psn}
	return true
}
