// Package cmcore is the communication manager of one device: the state machines
// that connect queue pairs with the messages of package mad.
//
// A [Service] stands on a [Link], which carries MADs between the QP 1 of two
// hosts and may lose, repeat and reorder them. Package cm (Go programs) and the
// rdma_cm front of softmkey run share the service of a device. The package knows
// queue pairs by number only: who owns them moves them with the attributes of
// [Conn.Attr].
//
// # Connections
//
// [Service.Connect] sends a REQ and resends it until an answer comes. On the
// other side, the listener's handler gets a [Conn] with the [Request]; it
// accepts ([Conn.Accept], a REP) or refuses ([Conn.Reject], a REJ). The
// connecting side hears [Replied] and confirms ([Conn.Ready], an RTU). Either
// side ends the connection with [Conn.Disconnect] (DREQ, DREP).
//
// # Events and locks
//
// Everything that happens is an [Event] for a [Handler]. The handlers of a
// service run one at a time, in the order in which the events happened, on the
// goroutine of whoever caused them: one that received a MAD, called a method, or
// runs a timer. A handler may call every method of the package and must not
// block. No lock is held meanwhile.
//
// # Bounds
//
// A peer makes the service keep state only up to [Options].MaxConns connections
// and up to a listener's backlog. Timeouts that peers ask for are clamped, so
// that every unanswered exchange ends. MADs about a connection are taken only
// from the address of its peer.
package cmcore
