//go:build linux

package uverbs

import (
	"runtime"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// doorbell looks at the doorbells of a device's contexts, which are ordinary
// memory that the programs write to. It spins for a while after work, then backs
// off, and sleeps while no queue pair can be rung.
type doorbell struct {
	mu       sync.Mutex
	contexts []*adapter.Context // replaced, never changed
	woken    chan struct{}      // capacity 1
	ending   chan struct{}
	ended    chan struct{}
	turn     sync.Mutex // held during a look at the contexts
}

const (
	spinTime   = 50 * time.Microsecond
	shortSleep = 50 * time.Microsecond
	longSleep  = time.Millisecond
	// scanEvery is how many looks at hints pass between two looks at every record.
	scanEvery = 64
)

func newDoorbell() *doorbell {
	b := &doorbell{woken: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	go b.run()
	return b
}

// wake makes the doorbell look again. It does not block.
func (b *doorbell) wake(*adapter.Context) {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

func (b *doorbell) add(ctx *adapter.Context) {
	b.mu.Lock()
	b.contexts = append(append([]*adapter.Context(nil), b.contexts...), ctx)
	b.mu.Unlock()
	b.wake(nil)
}

// remove forgets a context; nothing looks at it any more when it returns.
func (b *doorbell) remove(ctx *adapter.Context) {
	b.mu.Lock()
	var left []*adapter.Context
	for _, c := range b.contexts {
		if c != ctx {
			left = append(left, c)
		}
	}
	b.contexts = left
	b.mu.Unlock()
	b.turn.Lock() // waits for a look that began before
	b.turn.Unlock()
}

func (b *doorbell) close() {
	close(b.ending)
	<-b.ended
}

// look polls or scans every context and reports whether one had work, and
// whether one may have some soon.
func (b *doorbell) look(scan bool) (worked, busy bool) {
	b.turn.Lock()
	defer b.turn.Unlock()
	b.mu.Lock()
	contexts := b.contexts
	b.mu.Unlock()
	for _, c := range contexts {
		if c.Poll() {
			worked = true
		}
		if scan && c.Scan() {
			worked = true
		}
		busy = busy || c.Busy()
	}
	return worked, busy
}

func (b *doorbell) run() {
	defer close(b.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	last := time.Now()
	sleep := shortSleep
	for n := 1; ; n++ {
		worked, busy := b.look(n%scanEvery == 0)
		if worked {
			last, sleep = time.Now(), shortSleep
			continue
		}
		if busy && time.Since(last) < spinTime {
			runtime.Gosched()
			continue
		}
		if w, _ := b.look(true); w {
			last, sleep = time.Now(), shortSleep
			continue
		}
		var wait <-chan time.Time
		if busy {
			timer.Reset(sleep)
			wait = timer.C
			sleep = min(2*sleep, longSleep)
		}
		select {
		case <-b.ending:
			return
		case <-b.woken:
			last, sleep = time.Now(), shortSleep
		case <-wait:
		}
	}
}
