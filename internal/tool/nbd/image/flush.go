package image

import (
	"sync"
	"sync/atomic"
)

// flusher runs one sync at a time. The kernel gives the error of a write-back to one sync only, so with
// several at a time the data of one caller could be lost in the sync of another. Callers that wait
// share the next sync, which begins after all of their writes.
type flusher struct {
	sync   func() error
	called atomic.Uint64 // calls of flush so far

	mu     sync.Mutex // held during a sync, for which only other calls of flush wait; guards the following fields
	synced uint64     // the first calls, whose writes are on stable storage
	err    error      // of the first sync that failed
}

// flush syncs. It returns the error of the first sync that ever failed, and whether this call is the
// one that learned of it.
func (f *flusher) flush() (err error, first bool) {
	mine := f.called.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.synced >= mine {
		return f.err, false
	}
	begun := f.called.Load()
	if f.err = f.sync(); f.err == nil {
		f.synced = begun
	}
	return f.err, f.err != nil
}
