package netconn

// MemberBits is the number of bits that distinguish the processes that share an
// address.
const MemberBits = 6

// A Member is a Conn at an address that several processes share. The QP number, or the
// communication ID, in a packet determines the process that receives it: each process
// has a number, which is in the top bits of all QP numbers (24 bits) and communication
// IDs (32 bits) that it chooses.
type Member interface {
	// Member returns the process's number, less than 1<<MemberBits.
	Member() uint32

	// Shared reports whether another process uses or has used the address.
	Shared() bool

	// Claim makes connection requests for a service ID reach this process until
	// release is called. It returns EADDRINUSE if another process has claimed it.
	Claim(serviceID uint64) (release func(), err error)
}
