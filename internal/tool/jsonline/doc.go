// Package jsonline is a conversation of two programs over a connection, in which
// each message is a line of JSON.
//
// Nothing that comes from the peer is trusted: a line has a largest length, unknown
// fields are errors, text of the peer is made harmless by [Clean] before it is
// shown, and [Conn.Timeout] limits how long each step waits for the peer.
package jsonline
