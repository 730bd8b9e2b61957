package mkeyio

import (
	"time"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// Direction is the direction of a stream through a key.
type Direction uint8

// The directions of a [StreamJob].
const (
	TX Direction = iota // the input is the memory domain, the output the wire domain
	RX                  // the input is the wire domain, the output the memory domain
)

// String returns "tx" or "rx".
func (d Direction) String() string {
	if d == RX {
		return "rx"
	}
	return "tx"
}

// StreamJob describes the processing of a stream. The zero StreamJob copies its input.
// Without crypto, blocks may be of any size that is a multiple of 8; with
// crypto, of the sizes that a key has.
type StreamJob struct {
	Direction Direction
	Signature *mkey.Signature // nil: neither domain has signatures
	Crypto    *mkey.Crypto    // nil: none

	// Offset is the position in the key's wire domain where the stream begins. It gives
	// the numbers of the first block and data unit. It must be a boundary of
	// blocks and data units of both domains.
	Offset uint64

	// KeepGoing continues after a bad block.
	KeepGoing bool

	// Bad, if not nil, is called for the first bad block; with KeepGoing, it is
	// called for every bad block, in rising order.
	Bad func(*mkey.BadBlock)

	// Progress, if not nil, is called after each chunk with the number of bytes
	// of the input that were processed.
	Progress func(done int64)

	// Workers is the number of goroutines that process chunks; 0 means one for each core.
	Workers int

	keepEscapes bool // sig.TransformConfig.KeepEscapes

	chunk   int64       // approximate bytes of data in a chunk; 0 means chunkSize
	units   *Encryption // encrypts without a key; nil: a key does the job
	keyless bool        // use no key if the job can be done without one
}

// JobReport is the outcome of a job.
type JobReport struct {
	BytesIn  int64 // bytes of the input that were processed; a job that ends at a bad block has processed that block and those before it
	BytesOut int64 // bytes of the output's stream
	Blocks   int64 // blocks that were checked in the input or, if the input has no signature, signed in the output; 0 if the masks leave nothing of a field to check
	Escaped  int64 // blocks among them that were not checked, because their tags exempt them
	Errors   int64 // number of bad blocks
	Tail     int64 // bytes of data after the last complete block, which have no field and were not checked
	First    *mkey.BadBlock
	Elapsed  time.Duration
}

// Protect returns the job that adds a field after every block of plain data.
// [Run] refuses the job if f has no signature; the same holds for Strip and
// Convert.
func Protect(f sig.Format) StreamJob {
	return StreamJob{Direction: TX, Signature: signature(nil, &f)}
}

// Strip returns the job that checks the field of every block and leaves it out.
// With [CheckOnly] as its output the job only verifies the stream.
func Strip(f sig.Format) StreamJob {
	return StreamJob{Direction: RX, Signature: signature(nil, &f)}
}

// Convert returns the job that checks the fields of one format and writes those of
// another. If both have one type and block size, the bytes of [sig.ConsistentCopyMask] are
// copied, so that a bad field stays bad. A block that an escape exempts from the check
// stays exempt if both have one block size and the other format has an escape; otherwise it
// gets a whole field. One of the formats may be plain data.
func Convert(from, to sig.Format) StreamJob {
	s := signature(&from, &to)
	if from.Type != sig.NoSignature && from.Type == to.Type && from.Block() == to.Block() {
		s.CopyMask = new(sig.ConsistentCopyMask(from, to))
	}
	// Keys follow the copy mask for escaped blocks, too, so Convert needs a job without a key.
	return StreamJob{Direction: TX, Signature: s, keepEscapes: from.Block() == to.Block() && hasTags(from) && hasTags(to)}
}

// hasTags reports whether a format has tags, which can exempt a block from the check.
func hasTags(f sig.Format) bool {
	_, ref := f.TagBits()
	return ref > 0
}

// signature returns signature attributes that check every byte of the fields.
func signature(memory, wire *sig.Format) *mkey.Signature {
	return &mkey.Signature{Memory: signed(memory), Wire: signed(wire)}
}

func signed(f *sig.Format) *sig.Format {
	if f == nil || f.Type == sig.NoSignature {
		return nil
	}
	return f
}
