//go:build !unix

package main

import "net"

// atOnce is the flag with which the opening of a named pipe does not wait for its other end.
const atOnce = 0

// passedSockets returns none: there is no protocol for passing sockets here.
func passedSockets() ([]net.Listener, error) { return nil, nil }
