package adapter

import (
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Failures are the numbers of completions with an error that a device has written, by side and syndrome.
type Failures [2][256]atomic.Uint64

// The sides: completions of send queues, and of receive queues.
const (
	Requester = 0
	Responder = 1
)

// count counts a completion, if it has an error.
func (f *Failures) count(c *prm.CQE) {
	switch c.Opcode {
	case prm.CQERequesterErr:
		f[Requester][c.Syndrome].Add(1)
	case prm.CQERecvErr:
		f[Responder][c.Syndrome].Add(1)
	}
}

// All returns the number of completions of a side.
func (f *Failures) All(side int) (n uint64) {
	for i := range f[side] {
		n += f[side][i].Load()
	}
	return n
}

// Of returns the number of completions of a side with a syndrome.
func (f *Failures) Of(side int, s prm.Syndrome) uint64 { return f[side][s].Load() }

// Failures returns the completions with an error since the device was opened.
func (d *Device) Failures() *Failures { return &d.failures }
