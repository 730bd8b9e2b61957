//go:build !unix

package main

import "net"

// passedSockets returns none: there is no protocol for passing sockets here.
func passedSockets() ([]net.Listener, error) { return nil, nil }
