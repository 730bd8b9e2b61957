package pcap

import (
	"io"
	"slices"
	"sync"
)

// mostQueued is how many bytes wait for a reader before packets are left out.
const mostQueued = 16 << 20

// queue passes bytes on to a writer that may block, in a goroutine of its own that close ends.
type queue struct {
	w     io.Writer
	ended chan struct{}

	mu      sync.Mutex // guards the following fields
	more    sync.Cond
	bytes   []byte
	writing int // bytes that run has taken and not written yet
	closed  bool
	err     error // the first one of w
}

func newQueue(w io.Writer) *queue {
	q := &queue{w: w, ended: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

func (q *queue) run() {
	defer close(q.ended)
	var taken []byte
	for {
		q.mu.Lock()
		for len(q.bytes) == 0 && !q.closed {
			q.more.Wait()
		}
		taken, q.bytes = q.bytes, taken[:0]
		q.writing = len(taken)
		q.mu.Unlock()
		if len(taken) == 0 {
			return
		}
		for piece := range slices.Chunk(taken, mostQueued/16) {
			_, err := q.w.Write(piece)
			q.mu.Lock()
			q.writing -= len(piece)
			q.err = err
			q.mu.Unlock()
			if err != nil {
				return
			}
		}
	}
}

// Write implements io.Writer. It does not block.
func (q *queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return 0, q.err
	}
	q.bytes = append(q.bytes, p...)
	q.more.Signal()
	return len(p), nil
}

// full reports whether the reader is so late that packets are left out.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing+len(q.bytes) >= mostQueued
}

// close waits until everything is written, and returns the first error.
func (q *queue) close() error {
	q.mu.Lock()
	q.closed = true
	q.more.Signal()
	q.mu.Unlock()
	<-q.ended
	return q.err
}
