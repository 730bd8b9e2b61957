// Package rendezvous brings two programs together that will use a connection of
// package verbs: one listens on a TCP port, the other one connects.
//
// A listener may be reached by strangers. [Listener.Serve] and [Accept] serve
// connections side by side, each step of a conversation has a time limit, and a
// connection that fails ends alone. [CheckDevice] holds the address that a peer
// gives for its device against the address of the peer's connection, so that no
// peer can direct packets at a third host.
package rendezvous
