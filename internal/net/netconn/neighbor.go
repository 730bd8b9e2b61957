package netconn

import (
	"net/netip"

	"github.com/softmkey/softmkey/packetconn"
)

// A Neighbor is a Conn that passes packets to other processes on the same machine in memory that both
// processes map. The packets are otherwise those of the network.
type Neighbor interface {
	// Approach prepares to pass packets to a QP at an address in memory, and reports whether
	// that is possible. If so, the packets pass in memory as long as the other process lives.
	// Approach waits for the other process for at most a fraction of a second. Without Approach,
	// the first packets go through the network, and later packets, in memory, may overtake them.
	Approach(to netip.AddrPort, qpn uint32) bool

	// Room reports whether packets that nobody repeats may be sent to a QP at an address. It is false while the
	// memory to its process is nearly full, so that they would be lost. If the process takes nothing for long, Room
	// is true again, and packets are lost.
	Room(to netip.AddrPort, qpn uint32) bool

	// Behind reports whether the process of a QP at an address has packets in memory of which it has taken none since an
	// earlier call. It does not run then, and its silence says nothing about the network. If the process takes nothing
	// for many seconds, Behind is false again.
	Behind(to netip.AddrPort, qpn uint32) bool

	// Sleep must be called before waiting on the descriptor of [SyscallConn]. From then until the
	// next Poll, the descriptor also becomes readable when packets arrive in memory. Sleep reports
	// whether packets have arrived already; the caller then calls Poll instead of waiting.
	Sleep() (arrived bool)

	// PollMemory is Poll for the packets that passed in memory alone. It makes no system call, unless Sleep was called
	// before.
	PollMemory(trains []packetconn.Train) int

	// Kick tells the receivers of the packets that were passed in memory since the last Kick to look for them
	// at once, on a processor of the machine: the caller's, which they take from it. It does not wait
	// for them, but they may have answered when it returns. Kick reports whether there were such packets. Without
	// Kick the receivers look by themselves, within a millisecond.
	Kick(cpu int) (told bool)

	// Blocking reports whether packets were passed in memory, since the last call, to a process that blocks in
	// Recv until packets arrive. Unlike the thread of a device that polls, the threads of such a process need a
	// processor when packets arrive.
	Blocking() bool
}
