package packetconn

import "net/netip"

// A Neighbor is a Conn that reaches other processes on the same machine by memory that both
// processes map. Its packets are otherwise as on the network. Callers find the Neighbor inside of a
// [Wrapper] with [AsNeighbor].
type Neighbor interface {
	// Approach prepares to send packets to a QP at an address by memory, if that is possible. It
	// waits for the other process for a fraction of a second at most. Without Approach, the first
	// packets go through the network, and later ones may overtake them.
	Approach(to netip.AddrPort, qpn uint32)

	// Sleep is called before waiting on the descriptor of [SyscallConn], which becomes readable
	// for packets that arrive in memory only after a call of Sleep. Poll ends this. Sleep reports
	// whether packets have arrived already; the caller then polls and does not wait.
	Sleep() (arrived bool)
}

// AsNeighbor returns the Neighbor that c is or contains.
func AsNeighbor(c Conn) (Neighbor, bool) { return ability[Neighbor](c) }
