//go:build linux

package uverbs

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestChannelBeyondPipe queues more events than the pipe holds. The program gets all of them without
// another event, in order.
func TestChannelBeyondPipe(t *testing.T) {
	for _, size := range []int{compEventSize, asyncEventSize, cookieSize, cookieSize + eqeSize} {
		ch, err := newChannel(size, 1)
		fatal.If(t, err)
		defer ch.close()
		const events = 10000
		var count uint32
		for i := range events {
			ch.put(newEvent(size, uint64(i), 0), &count)
		}
		unix.SetNonblock(int(ch.r.Fd()), false)
		buf := make([]byte, size)
		for i := range events {
			if _, err := io.ReadFull(ch.r, buf); err != nil {
				t.Fatal(err)
			}
			if got := le.Uint64(buf); got != uint64(i) {
				t.Fatalf("events of %d bytes: event %d names %d", size, i, got)
			}
		}
		if count != events {
			t.Errorf("%d events were counted, of %d", count, events)
		}
	}
}

// TestChannelTakesFromBacklog removes an object's events while more wait than the pipe holds.
func TestChannelTakesFromBacklog(t *testing.T) {
	ch, err := newChannel(asyncEventSize, 1)
	fatal.If(t, err)
	const events = 9000
	var even, odd uint32
	for i := range events {
		count := &even
		if i%2 == 1 {
			count = &odd
		}
		ch.put(newEvent(asyncEventSize, uint64(i%2), 0), count)
	}
	if read := ch.take(1, &odd); read != 0 {
		t.Errorf("the program has read %d events of the object, want none", read)
	}
	buf := make([]byte, asyncEventSize)
	unix.SetNonblock(int(ch.r.Fd()), false)
	for range events / 2 {
		if _, err := io.ReadFull(ch.r, buf); err != nil || le.Uint64(buf) != 0 {
			t.Fatalf("event of object %d, %v", le.Uint64(buf), err)
		}
	}
	ch.close()
}

// TestChannelClosedWithBacklog closes a channel whose events nobody reads: its goroutine ends. Events
// beyond the bound are lost, and not counted.
func TestChannelClosedWithBacklog(t *testing.T) {
	ch, err := newChannel(cookieSize+eqeSize, 1)
	fatal.If(t, err)
	var count uint32
	const events = 2 * mostBacklog / (cookieSize + eqeSize)
	for range events {
		ch.put(newEvent(cookieSize+eqeSize, 0, 0), &count)
	}
	if count >= events {
		t.Errorf("%d events were counted, though some are lost", count)
	}
	ch.close()
	ch.put(newEvent(cookieSize+eqeSize, 0, 0), &count)
}
