package mkeyio

import (
	"time"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// Direction is the way of a stream through a key.
type Direction uint8

// The directions of a [Job].
const (
	TX Direction = iota // the input is the memory domain, the output the wire domain
	RX                  // the reverse
)

// String returns "tx" or "rx".
func (d Direction) String() string {
	if d == RX {
		return "rx"
	}
	return "tx"
}

// Job says what is done to a stream. Its zero value copies. Blocks may be of any
// size that is a multiple of 8, without crypto; with crypto of those of a key.
type Job struct {
	Direction Direction
	Signature *mkey.Signature // nil: neither domain has signatures
	Crypto    *mkey.Crypto    // nil: none

	// Offset is where in the key's wire domain the stream begins: the number of
	// its first block and data unit follow from it. It must be a boundary of
	// blocks and data units of both domains.
	Offset uint64

	// KeepGoing lets the data flow on behind a bad block.
	KeepGoing bool

	// Bad, if not nil, is told of bad blocks in order: of the first, or with
	// KeepGoing of every one.
	Bad func(*mkey.BadBlock)

	// Progress, if not nil, is told from time to time how many bytes of the input
	// are done.
	Progress func(done uint64)

	// Workers is the number of goroutines that work on chunks; 0 means one for
	// each core.
	Workers int

	chunk   int64 // data bytes of a chunk, about; 0 means chunkSize
	keyless bool  // without a key where that can be
}

// Report is the outcome of a job.
type Report struct {
	BytesIn  uint64 // read from the input
	BytesOut uint64 // of the output's stream
	Blocks   uint64 // checked in the input or, if that has no signature, signed in the output
	Errors   uint64 // bad blocks
	Tail     uint64 // bytes of data behind the last whole block, without check or field
	First    *mkey.BadBlock
	Elapsed  time.Duration
}

// Protect returns the job that puts a field behind every block of plain data.
func Protect(f sig.Format) Job {
	return Job{Direction: TX, Signature: signature(nil, &f)}
}

// Strip returns the job that checks the field of every block and leaves it out.
// With [CheckOnly] for an output it verifies.
func Strip(f sig.Format) Job {
	return Job{Direction: RX, Signature: signature(nil, &f)}
}

// Convert returns the job that checks the fields of one format and writes those of
// another. Where type and block size are the same, the parts of a field that both
// formats agree on are copied, so that what was wrong stays wrong.
func Convert(from, to sig.Format) Job {
	s := signature(&from, &to)
	if from.Type != sig.None && from.Type == to.Type && from.Block() == to.Block() {
		s.Flags, s.CopyMask = mkey.UseCopyMask, sig.ConsistentCopyMask(from, to)
	}
	return Job{Direction: TX, Signature: s}
}

// signature returns attributes that check everything, or nil if there is nothing
// to check or sign.
func signature(memory, wire *sig.Format) *mkey.Signature {
	s := &mkey.Signature{Memory: signed(memory), Wire: signed(wire), CheckMask: sig.MaskAll}
	if s.Memory == nil && s.Wire == nil {
		return nil
	}
	return s
}

func signed(f *sig.Format) *sig.Format {
	if f == nil || f.Type == sig.None {
		return nil
	}
	return f
}
