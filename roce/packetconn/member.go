package packetconn

// MemberBits is the number of bits that distinguish the processes that share an
// address.
const MemberBits = 6

// A Member is a Conn of an address that several processes share. The ids in a
// packet determine the process that receives it. Each process has a number,
// which it puts in the top bits of every id that it chooses: QP numbers (24
// bits) and communication ids (32 bits). Callers find the Member inside of a
// [Wrapper] with [AsMember].
type Member interface {
	// Member returns the process's number, less than 1<<MemberBits.
	Member() uint32

	// Shared reports whether another process uses or has used the address.
	Shared() bool

	// Claim makes requests for a service id of the communication manager reach this
	// process, until release is called. It returns EADDRINUSE if another process has
	// claimed it.
	Claim(serviceID uint64) (release func(), err error)
}

// AsMember returns the Member that c is or contains.
func AsMember(c Conn) (Member, bool) { return ability[Member](c) }
