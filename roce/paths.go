package roce

import (
	"net/netip"
	"slices"
	"time"
)

// PathState is the state of congestion control for one peer.
type PathState struct {
	Peer      netip.Addr    `json:"peer"`
	QPs       int           `json:"qps"`           // connected to it
	RoundTrip time.Duration `json:"round_trip_ns"` // smoothed, the shortest of its QPs; 0: not measured yet
	Requests  WindowState   `json:"requests"`      // sent to the peer
	Responses WindowState   `json:"responses"`     // data of READs from the peer
}

// WindowState is the state of a congestion window. Byte counts include 256 bytes for each
// packet.
type WindowState struct {
	Limit    int64  `json:"limit_bytes"`
	InFlight int64  `json:"in_flight_bytes"`
	Waiting  int    `json:"waiting_qps"` // QPs that wait for room
	Cuts     uint64 `json:"cuts"`        // reductions because of loss
}

// Paths returns the state of congestion control for each peer that QPs are connected to,
// in the order of addresses. It is for reports: it locks every QP of the port in turn.
func (p *Port) Paths() []PathState {
	trips := make(map[*peer]int64)
	for _, q := range p.qps.all() {
		q.mu.Lock()
		if trip, measured := q.req.loss.Trip(); q.peer != nil && measured {
			if t := trips[q.peer]; t == 0 || trip < t {
				trips[q.peer] = trip
			}
		}
		q.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := make([]PathState, 0, len(p.peers))
	for addr, e := range p.peers {
		paths = append(paths, PathState{
			Peer: addr, QPs: e.qps, RoundTrip: time.Duration(trips[e]), Requests: e.out.state(), Responses: e.in.state(),
		})
	}
	slices.SortFunc(paths, func(a, b PathState) int { return a.Peer.Compare(b.Peer) })
	return paths
}
