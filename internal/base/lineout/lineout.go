// Package lineout prints the lines of a server. A terminal or a pipe may take lines slowly, or not at all if
// nobody reads the pipe. No goroutine that serves a client waits for it: lines beyond a bound are lost, and
// counted in a line of their own.
package lineout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Bound is the largest number of bytes that wait to be written.
const Bound = 64 << 10

// patience is the time that Close waits for a writer that does not take its lines.
const patience = time.Second

// ErrLate is the error of a Close whose writer has not taken the last lines in time.
var ErrLate = errors.New("lineout: the reader does not take the last lines")

// Queue is a writer of lines. Write never waits. A Queue is safe for concurrent use.
type Queue struct {
	to   io.Writer
	lost func(n uint64) string
	wake chan struct{} // has an element when there is something to write, or the end
	done chan struct{} // closed when the goroutine has ended
	err  error         // of the first write that failed; valid after done is closed

	mu      sync.Mutex // guards the following fields
	waiting []byte
	missing uint64 // lines that were lost since the last one that waits
	closed  bool
}

// New returns a queue of lines for a writer. lost returns the line, with its line feed, that stands where n lines
// were lost. The caller calls Close.
func New(to io.Writer, lost func(n uint64) string) *Queue {
	q := &Queue{to: to, lost: lost, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write implements io.Writer. p is one or more whole lines, which are written together or lost together. Its only
// error is that of a queue that was closed.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, fmt.Errorf("lineout: %w", io.ErrClosedPipe)
	}
	notice := q.noticeLocked()
	if len(q.waiting)+len(notice)+len(p) > Bound {
		q.missing += uint64(bytes.Count(p, []byte("\n")))
		return len(p), nil
	}
	q.addLocked(notice, p)
	return len(p), nil
}

// noticeLocked returns the line about the lines that were lost, if there are some.
func (q *Queue) noticeLocked() string {
	if q.missing == 0 {
		return ""
	}
	return q.lost(q.missing)
}

// addLocked adds a notice of lost lines, which may be empty, and further lines.
func (q *Queue) addLocked(notice string, p []byte) {
	q.waiting = append(append(q.waiting, notice...), p...)
	q.missing = 0
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run writes the lines. After an error of the writer it takes them, and writes nothing.
func (q *Queue) run() {
	defer close(q.done)
	var writing []byte
	for range q.wake {
		q.mu.Lock()
		writing, q.waiting = q.waiting, writing[:0]
		closed := q.closed
		q.mu.Unlock()
		if q.err == nil && len(writing) > 0 {
			_, q.err = q.to.Write(writing)
		}
		if closed {
			return
		}
	}
}

// Close writes the lines that wait, and ends the queue. If the writer does not take them within a second, Close
// returns ErrLate, and the queue's goroutine ends when the writer does. Otherwise it returns the writer's first error.
func (q *Queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.addLocked(q.noticeLocked(), nil)
	}
	q.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-q.done:
		return q.err
	case <-late.C:
		return ErrLate
	}
}
