package rdma

import (
	"net/netip"
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
