// Package mkeyio runs streams and files of any size through a memory key, on all
// cores and in constant memory.
//
// A [Job] says what is done: the attributes of a key of package mkey, and the
// direction. TX reads the memory domain and writes the wire domain, RX the
// reverse. [Protect], [Strip] and [Convert] are the everyday jobs:
//
//	report, err := mkeyio.Run(ctx, mkeyio.Protect(format), mkeyio.ToFile(out), in)
//
// [Run] cuts the stream into chunks that begin and end on a boundary of the blocks
// and data units of both domains. Each core works on a chunk of its own, with a key
// of its own over a window of memory, and the results are taken in order. Where
// both ends can be reached at any offset, as files can, the workers read and write
// by themselves. Where no boundary comes often enough, as with two unlike block
// sizes and a third size of data units, one worker runs the stream as a whole.
//
// # Bad signatures
//
// The job ends at the first bad block of the stream, unless KeepGoing is set; then
// the data flows on, as it does in hardware. Job.Bad is told of bad blocks in rising
// order, with numbers and offsets that count from the beginning of the stream, and
// the error of Run is the first of them, an [mkey.BadBlock].
//
// # The end of a stream
//
// A stream may end inside a block. That part has no field: it passes through
// without a check and is counted in Report.Tail. A stream of blocks and fields
// that ends with a field missing or cut was truncated, and is an error.
//
// # Concurrency and cancellation
//
// Functions of a Job are called by the goroutine that called Run. When the context
// ends, Run returns soon and starts no further operation. Reads and writes at an
// offset are waited for. A sequential Read or Write that blocks is not, as nothing
// can interrupt it: its goroutine ends when the call does.
package mkeyio
