// Package peer controls rxepeer, a small libibverbs program that runs in a guest with
// soft-RoCE. rxepeer creates queue pairs, memory and work requests and reports their
// results, so that one test can control both ends of a connection.
//
// A [Session] is a connection to rxepeer, with a process and a device context of its own
// in the guest. Closing it frees everything that was created through it. The calls mirror
// libibverbs: [Session.NewBuffer], [Session.NewQP], [QP.Connect], [QP.Post],
// [Session.Wait].
//
// A Session may be used by one goroutine at a time. Several sessions may be open.
package peer
