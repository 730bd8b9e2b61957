package packetconn

// MemberBits is the number of bits in which the processes of a shared address differ.
const MemberBits = 6

// A Member is a Conn of an address that several processes share. Packets are steered by the ids
// in them, so the process's number is in the top bits of each id that it chooses: of its queue
// pairs' numbers (24 bits) and of its communication ids (32 bits). Callers find the Member
// inside of a [Wrapper] with [AsMember].
type Member interface {
	// Member returns the process's number, less than 1<<MemberBits.
	Member() uint32

	// Shared reports whether another process has, or had, the address, too.
	Shared() bool

	// Claim makes requests for a service id of the communication manager reach this
	// process, until release is called. It returns EADDRINUSE if another process has
	// claimed it.
	Claim(serviceID uint64) (release func(), err error)
}

// AsMember returns the Member that c is or contains.
func AsMember(c Conn) (Member, bool) { return ability[Member](c) }
