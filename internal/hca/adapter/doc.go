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
// # Locks
//
// The engine's lock of a QP guards its queues: requests are decoded and completions are
// written with it held. Inside of it stand the locks of CQs and SRQs, and the lock of the
// context's sets. Events leave by a goroutine of the context, outside of all locks.
//
// # Program memory
//
// Everything that the program may change meanwhile is copied before it is decoded. A queue
// or doorbell record that cannot be read or written any more ends the QP, SRQ or CQ that
// needs it, and nothing else.
//
// # What is not emulated
//
// Raw packets, flow steering and RSS, DC, on-demand paging, device memory, alternate paths,
// packet pacing, blocking of a QP's own multicasts, tag matching, signatures of queue entries, compressed
// completions and data in completions. None of them is advertised, and asking for one fails
// at once. An XRC receive QP that is made before the SRQs of its domain belongs to the
// oldest PD of the context.
//
// # Errors
//
// Errors of calls are [operr.Error] with the errno that the mlx5 driver gives. Requests
// in queues fail as completions; the reason goes to the [Tracer] in words.
package adapter
