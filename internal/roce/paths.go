package roce

import (
	"slices"
	"time"

	"github.com/softmkey/softmkey/rdma"
)

// Paths returns the state of congestion control for each peer that QPs are connected to,
// in the order of addresses. It is for reports: it locks every QP of the port in turn.
func (p *Port) Paths() []rdma.PathState {
	trips := make(map[*peer]int64)
	for _, q := range p.qps.All() {
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
	paths := make([]rdma.PathState, 0, len(p.peers))
	for addr, e := range p.peers {
		paths = append(paths, rdma.PathState{
			Peer: addr, QPs: e.qps, RoundTrip: time.Duration(trips[e]), Requests: e.out.state(), Responses: e.in.state(),
		})
	}
	slices.SortFunc(paths, func(a, b rdma.PathState) int { return a.Peer.Compare(b.Peer) })
	return paths
}
