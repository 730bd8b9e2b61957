// Package mkeyio runs streams and files of any size through a memory key, on all
// cores and in constant memory.
//
// A [StreamJob] has the attributes of a key of package mkey, and a direction: TX
// reads the memory domain and writes the wire domain, RX the reverse.
// [Protect], [Strip] and [Convert] return the most common jobs. [Run] does a
// job from an [Input] to an [Output]; [FromFile] and [ToFile] make inputs and
// outputs of files.
//
// Run cuts the stream into chunks that begin and end at a boundary of the blocks and data
// units of both domains. Each worker processes one chunk at a time, with a key of its own
// over a window of memory, and Run takes the results in order. If an end can be accessed
// at any offset, as files can, the workers read or write it directly. If boundaries are
// too far apart, as with two different block sizes and a third size of data units, one
// worker processes the whole stream in order.
//
// A [View] gives access at any offset to the data of a stored stream: reads check and decrypt,
// writes sign and encrypt.
//
// [Encryption] is the short way to encrypt and decrypt streams of any length,
// with ciphertext stealing, which keys and adapters do not support.
//
// # Fields in a file of their own
//
// [FromSeparate], [ToSeparate] and [ToFields] make inputs and outputs of streams whose blocks are in one file and
// whose fields are in another, in the order of the blocks, as DIX and the separate metadata of NVMe have them.
// [SeparateStore] is the same for a View. Offsets of bad blocks remain those of the stream in which each block is followed by
// its field.
//
// # Bad signatures
//
// A job ends at the first bad block of the stream, unless StreamJob.KeepGoing is set; then the
// data flows on, as it does in hardware. Run calls StreamJob.Bad for bad blocks in rising order,
// with numbers and offsets that count from the beginning of the stream. The error of
// Run is the first of them, a *[mkey.BadBlock].
//
// Lengths of streams are int64, as in package io. StreamJob.Offset is a position in the wire domain
// of a key, where positions and lengths are uint64.
//
// # The end of a stream
//
// A stream may end within a block. That part of a block has no field: it passes through,
// is not checked, and is counted in JobReport.Tail. A stream of blocks and fields
// whose last field is missing or cut was truncated, which is an error.
//
// # Concurrency and cancellation
//
// The goroutine that called Run calls the functions of the StreamJob. When the
// context ends, Run starts no further operation and returns soon. It waits for
// reads and writes at an offset. It does not wait for a blocked sequential Read
// or Write, because nothing can interrupt the call; its goroutine ends when the
// call returns.
package mkeyio
