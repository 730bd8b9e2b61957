// Package peer drives rxepeer, the small libibverbs program that runs in a
// guest with soft-RoCE: it makes queue pairs, memory and work requests there
// and reports what comes of them, so that a test holds both ends of a
// connection in one place.
//
// A [Session] is one connection to rxepeer and there a process with a device
// context of its own; closing it frees everything that was made through it.
// The short way mirrors libibverbs: [Session.NewBuffer], [Session.NewQP],
// [QP.Connect], [QP.Post], [Session.Wait].
//
// A Session is for one goroutine at a time; open a second one for a second.
package peer
