package adapter

import (
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Failures are the numbers of completions with an error that a device has written, of requesters and of
// responders. The counts of a syndrome are parts of Requester and of Responder.
type Failures struct {
	Requester                       uint64 // completions of send queues with an error
	RequesterFlushed                uint64
	RequesterInvalid                uint64 // remote invalid request error
	RequesterAccess                 uint64 // remote access error
	RequesterRetries, RequesterRNRs uint64 // retries and RNR retries exceeded

	Responder        uint64 // completions of receive queues with an error
	ResponderFlushed uint64
	ResponderLength  uint64 // local length error
}

// failures counts the completions of [Failures], by side and syndrome.
type failures [2][256]atomic.Uint64

const (
	requesterSide = 0
	responderSide = 1
)

// count counts a completion, if it has an error.
func (f *failures) count(c *prm.CQE) {
	switch c.Opcode {
	case prm.CQERequesterErr:
		f[requesterSide][c.Syndrome].Add(1)
	case prm.CQERecvErr:
		f[responderSide][c.Syndrome].Add(1)
	}
}

// sum returns the number of completions of a side.
func (f *failures) sum(side int) (n uint64) {
	for i := range f[side] {
		n += f[side][i].Load()
	}
	return n
}

// Failures returns the numbers of completions with an error since the device was opened.
func (d *Device) Failures() Failures {
	of := func(side int, s prm.Syndrome) uint64 { return d.failures[side][s].Load() }
	return Failures{
		Requester:        d.failures.sum(requesterSide),
		RequesterFlushed: of(requesterSide, prm.SyndromeFlush),
		RequesterInvalid: of(requesterSide, prm.SyndromeRemoteInvalid),
		RequesterAccess:  of(requesterSide, prm.SyndromeRemoteAccess),
		RequesterRetries: of(requesterSide, prm.SyndromeRetryExceeded),
		RequesterRNRs:    of(requesterSide, prm.SyndromeRNRExceeded),
		Responder:        d.failures.sum(responderSide),
		ResponderFlushed: of(responderSide, prm.SyndromeFlush),
		ResponderLength:  of(responderSide, prm.SyndromeLocalLength),
	}
}
