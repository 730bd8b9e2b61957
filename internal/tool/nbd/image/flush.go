package image

import "sync"

// flusher runs one sync at a time. The kernel gives the error of a write-back to one sync only, so with
// several at a time the data of one caller could be lost in the sync of another. Callers that wait
// share the next sync, which begins after all of their writes.
type flusher struct {
	sync func() error

	mu      sync.Mutex // guards the following fields
	running *flush
	next    *flush // begins after running; callers join it until then
	err     error  // of the first sync that failed
}

// flush is a sync that is running, or will.
type flush struct{ done chan struct{} }

// flush syncs. It returns the error of the first sync that ever failed, and whether this call is the
// one that learned of it.
func (f *flusher) flush() (err error, first bool) {
	f.mu.Lock()
	if err := f.err; err != nil {
		f.mu.Unlock()
		return err, false
	}
	if joined := f.next; joined != nil {
		f.mu.Unlock()
		<-joined.done
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.err, false
	}
	mine, before := &flush{make(chan struct{})}, f.running
	f.next = mine
	f.mu.Unlock()
	if before != nil {
		<-before.done
	}
	f.mu.Lock()
	f.running, f.next = mine, nil
	f.mu.Unlock()

	err = f.sync()

	f.mu.Lock()
	if f.running == mine {
		f.running = nil
	}
	first = err != nil && f.err == nil
	if first {
		f.err = err
	}
	err = f.err
	f.mu.Unlock()
	close(mine.done)
	return err, first
}
