// Package cm connects queue pairs by IP address and port, as rdma_cm does: it is
// the connection manager of InfiniBand over RoCEv2, in the shape of Go's net.
//
// A server listens and accepts, a client dials:
//
//	l, err := cm.Listen(dev, 7471, nil)
//	req, err := l.Accept()
//	conn, err := req.Accept(ctx, qp, nil)
//
//	conn, err := cm.Dial(ctx, qp, netip.MustParseAddrPort("192.0.2.1:7471"), nil)
//
// Both bring a QP of package verbs from RESET to RTS, with the numbers, the
// first PSNs, the path MTU and the limits that the two sides agree on. The peer
// may be a program that uses librdmacm, on an adapter or on Linux's soft-RoCE.
// Receive requests are posted before, after [Init], where a peer that sends at
// once must not wait for them.
//
// # Requests and private data
//
// A request carries up to 56 bytes for the application of the listener, which
// [Request.Accept] answers with up to 196 and [Request.Reject] with up to 148.
// The messages have fields of fixed length: the receiver gets all of the field,
// padded with zeros. A program that rejects gives a reason; [Dial] returns it in a
// [RejectError].
//
// # The end of a connection
//
// [Conn.Close] tells the peer and waits for its answer. On both sides [Conn.Done]
// is closed then, and the QP is in the error state, so that requests that were
// posted complete as flushed. A program that wants its last messages to arrive
// waits for their completions before it closes. A peer that disappears without a
// word is not noticed by the connection manager: the QP's next request fails with
// StatusRetryExcErr.
//
// # Selective repeat
//
// Two devices of this project agree on selective repeat, which standard peers do
// not know: the request offers it with the options of enhanced connection
// establishment (ECE), the acceptance confirms it.
//
// # Datagrams
//
// [ListenDatagram] and [Resolve] tell a sender of datagrams which UD QP, with
// which Q_Key, serves a port. There is no connection to end.
//
// # One service for each device
//
// All listeners and connections of a device share one service on its QP 1,
// which begins with the first and ends after the last. A device can be closed
// while connections are in time wait, the seconds in which late messages of an
// ended connection are still answered.
//
// # What is absent
//
// Alternate paths (LAP, APR), XRC and IPv6 zones.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, chapter 12
// and annex A11.
package cm
