// Package jsonline is a conversation of two programs over a connection, in which
// each message is a line of JSON.
//
// The peer is not trusted. Lines that are too long and lines with unknown fields are
// errors, [Conn.Timeout] limits how long each step waits for the peer, and [Clean] shortens
// text of the peer and escapes its control characters before it is shown.
package jsonline
