package lineout

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

func lost(n uint64) string { return fmt.Sprintf("%d lost\n", n) }

// gate is a writer that waits until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{} // has an element for each write that has begun
	text    strings.Builder
}

func (g *gate) Write(p []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.open
	return g.text.Write(p)
}

// TestStuck writes lines of several goroutines to a writer that takes none. No goroutine waits. When the writer
// takes lines again, each line is there, in the order of its goroutine, or is counted where it is missing.
func TestStuck(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan struct{}, 1000)}
	q := New(g, lost)
	fmt.Fprintln(q, "first")
	<-g.entered // the writer has the first line, and keeps it
	const writers, each = 4, 3000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				fmt.Fprintf(q, "writer %d line %d %s\n", w, i, strings.Repeat("x", 50))
			}
		})
	}
	wg.Wait()
	q.mu.Lock()
	if n := len(q.waiting); n > Bound || n < Bound/2 {
		t.Errorf("%d bytes wait: must be at most %d, and the test must come near", n, Bound)
	}
	q.mu.Unlock()
	close(g.open)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	lines, missing := 0, 0
	next := [writers]int{}
	all := strings.Split(strings.TrimSuffix(g.text.String(), "\n"), "\n")
	if all[0] != "first" {
		t.Errorf("the first line is %q", all[0])
	}
	for _, line := range all[1:] {
		var w, i, n int
		if _, err := fmt.Sscanf(line, "%d lost", &n); err == nil {
			missing += n
			continue
		}
		if _, err := fmt.Sscanf(line, "writer %d line %d", &w, &i); err != nil || i < next[w] {
			t.Fatalf("%q after line %d: %v", line, next[w], err)
		}
		next[w] = i + 1
		lines++
	}
	if lines+missing != writers*each || missing == 0 {
		t.Errorf("%d lines and %d missing ones, want %d", lines, missing, writers*each)
	}
}

// TestEnd closes queues whose writer fails, or takes nothing.
func TestEnd(t *testing.T) {
	r, w := io.Pipe()
	broken := errors.New("no reader")
	r.CloseWithError(broken)
	q := New(w, lost)
	fmt.Fprintln(q, "a line")
	if err := q.Close(); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: %v", err)
	}
	if _, err := fmt.Fprintln(q, "late"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a line after the end: %v", err)
	}
	g := &gate{open: make(chan struct{}), entered: make(chan struct{}, 2)}
	q = New(g, lost)
	fmt.Fprintln(q, "a line")
	if err := q.Close(); !errors.Is(err, ErrLate) {
		t.Errorf("a writer that takes nothing: %v", err)
	}
	close(g.open)
	<-q.done
}
