// Package cmcore is the communication manager of one device: the state machines
// that connect queue pairs with the messages of package mad.
//
// A [Service] uses a [Link], which carries MADs between the QP 1 of two hosts and may
// lose, duplicate and reorder them. Package cm (Go programs) and the rdma_cm front of
// softmkey run share the service of a device. The package knows queue pairs only by
// number: their owners modify them with the attributes of [Conn.Attr].
//
// # Connections
//
// [Service.Connect] sends a REQ and resends it until an answer comes. On the
// other side, the listener's handler gets a [Conn] with the [Request]; it
// accepts ([Conn.Accept], a REP) or refuses ([Conn.Reject], a REJ). The
// connecting side gets the event [Replied] and confirms ([Conn.Ready], an RTU). Either
// side ends the connection with [Conn.Disconnect] (DREQ, DREP).
//
// # Events and locks
//
// Results are reported as [Event]s to a [Handler]. The handlers of a service run one
// at a time, in the order of the events, on the goroutine that caused them: one that
// received a MAD, called a method, or runs a timer. A handler may call every method of
// the package and must not block. It is called without locks.
//
// # Bounds
//
// A peer makes the service keep state only up to bounds for each peer and in all: see
// [Options].MaxConns, [ListenConfig].Backlog and the constants beside [Conn.Taken]. What does
// not fit displaces the oldest that is not confirmed, because a limit alone would let
// strangers, whose addresses may be forged, keep everybody else out. The peer of a request
// that was displaced without an answer repeats it.
//
// Every state that only a stranger vouches for has a timer. Timeouts that peers ask for are
// clamped, and a peer that must confirm a connection gets more time once, so that every
// unanswered exchange ends. MADs about a connection are taken only from the address of its
// peer.
package cmcore
