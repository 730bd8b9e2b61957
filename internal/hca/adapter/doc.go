// Package adapter is the RDMA adapter that an mlx5 driver talks to: objects that are
// found by number, work queues and completion queues in somebody's memory, doorbells,
// events, and commands in the adapter's own format.
//
// A [Device] is an adapter with one port. A [Context] is one user of it (an open device
// of a program, later a guest's driver) with a [Memory] in which its queues and buffers
// stand. The objects of a context are made by calls that say where the queues are; the
// requests themselves are the adapter's own formats (package prm), which the adapter
// reads from the queues and executes on the engine that package verbs stands on.
//
// The package knows neither Linux's uverbs nor how another process's memory is reached:
// the callers translate.
//
// # Doorbells
//
// The doorbell records are the truth, a changed page of a [UAR] is a hint. [Context.Poll]
// follows hints and is cheap, [Context.Scan] looks at every record. The caller owns the
// goroutine that calls them.
//
// # Errors
//
// Errors of calls are [operr.Error] with the errno that the mlx5 driver gives. Requests
// in queues fail as completions; the reason goes to the [Tracer] in words.
package adapter
