// Package adapter is the RDMA adapter for an mlx5 driver: objects with numbers, work
// queues and completion queues in a program's memory, doorbells, events, and commands in
// the adapter's formats.
//
// A [Device] is an adapter with one port. A [Context] is one user of the device, for
// example an open device of a program. It has a [Memory] with its queues and buffers.
// Calls create the objects of a context and give the addresses of their queues. Requests
// have the adapter's formats (package prm); the adapter reads them from the queues and
// executes them on the engine, as package verbs does.
//
// The package depends neither on Linux's uverbs nor on the way in which another process's
// memory is accessed. Its callers translate between them.
//
// # Commands
//
// [Context.Exec] interprets firmware commands: bytes in, bytes out. It knows neither ioctls
// nor PCI. Its objects are those of the calls, in tables by number; a command finds each in
// constant time, and a user other than 0 finds only its own. A refused command has a status,
// and a syndrome of this device whose words stand in the trace.
//
// Queues, doorbell records and lists of pages lie in [Segments]: a range of a program's
// addresses, a umem with an offset, or pages.
//
// # Doorbells
//
// The doorbell records determine the state of the queues; a changed page of a [UAR] is
// only a hint. [Context.Poll] follows hints and is cheap, [Context.Scan] checks every
// record. The caller owns the goroutine that calls them. Where writes of registers can be
// seen one by one, [Context.Ring] delivers them.
//
// # Locks
//
// The engine's lock of a QP guards its queues: requests are decoded and completions are
// written with it held. The locks of CQs and SRQs, and the lock of the context's sets,
// are taken inside of it. A goroutine of the context delivers events without locks.
//
// # Program memory
//
// Data that the program may change is copied before it is decoded. If a queue or doorbell
// record can no longer be read or written, the QP, SRQ or CQ that needs it fails, and
// nothing else.
//
// # Not emulated
//
// Raw packets, flow steering and RSS, device memory, alternate paths, packet pacing, tag
// matching, signatures of queue entries, compressed completions and data in completions,
// memory keys on pages (MTT) of a umem, data units of 1 MiB. The device does not advertise
// them, and a request for one fails at once. An XRC receive QP ends with the context that
// created it, and RDMA requests through it reach the regions of one PD: that of the context's
// SRQs in its domain, or the oldest one of the context.
//
// # Errors
//
// Errors of calls are *operr.Error with the errno of the mlx5 driver. Requests in queues
// fail as completions; the reason goes to the [Tracer] in words.
package adapter
