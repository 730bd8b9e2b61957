// Package cm connects queue pairs by IP address and port, as rdma_cm does: it is
// the connection manager of InfiniBand over RoCEv2, in the shape of Go's net.
//
// A server listens and accepts, a client dials:
//
//	l, err := cm.Listen(dev, 7471, nil)
//	req, err := l.Accept(ctx)
//	conn, err := req.Accept(ctx, qp, nil)
//
//	conn, err := cm.Dial(ctx, qp, netip.MustParseAddrPort("192.0.2.1:7471"), nil)
//
// Both bring a QP of package verbs from RESET to RTS, with the numbers, the
// first PSNs, the path MTU and the limits that the two sides agree on. The peer
// may be a program that uses librdmacm, on an adapter or on Linux's soft-RoCE.
// If the peer may send at once, call [verbs.QP.Init] and post receive requests first.
//
// # Requests and private data
//
// A request carries up to 56 bytes of private data for the listener's application.
// [Request.Accept] answers with up to 196 bytes, [Request.Reject] with up to 148 and
// a reason, which [Dial] returns in a [RejectError]. The messages have fields of fixed
// length: the receiver gets the whole field, padded with zeros.
//
// # The end of a connection
//
// [Conn.Close] sends a disconnect request to the peer and waits for the answer. On both
// sides the channel [Conn.Done] is then closed and the QP is in the error state, so that
// outstanding requests complete as flushed. To make sure that its last messages arrive,
// a program waits for their completions before it calls Close. The connection manager
// does not notice when a peer disappears without a message: the QP's next request fails
// with StatusRetryExcErr.
//
// # Datagrams
//
// With [ListenDatagram] and [Resolve], a sender of datagrams finds the UD QP, and its
// Q_Key, that serves a port. No connection is opened.
//
// # One service for each device
//
// All listeners and connections of a device share one service on its QP 1. It starts
// with the first of them and ends after the last one. A device can be closed while
// connections are in time wait, the seconds during which late messages of an ended
// connection are still answered. If a device is closed while it has connections, they end
// with net.ErrClosed, and so do calls that wait for a peer.
//
// # Not implemented
//
// Alternate paths (LAP, APR), XRC and IPv6 zones.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, chapter 12
// and annex A11.
package cm
