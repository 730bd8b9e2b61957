//go:build linux

package uverbs

import (
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// watched is the memory of one region whose pages a device would have pinned. After the program has
// taken a part of them away, transfers there fail with that reason: an adapter would go on with the pages
// that were registered, which the device cannot reach.
type watched struct {
	*memory
	pid  int
	name string // of the region, for messages

	mu           sync.RWMutex // guards the following fields
	addr, length uint64
	write        bool // pinned for writing
	lost         []lostPages
}

// lostPages is a range that the program has taken away.
type lostPages struct {
	addr, end uint64
	protected bool // by mprotect, which can give it back
	why       string
}

// check returns the reason for which one of the pieces cannot be reached.
func (w *watched) check(vecs []adapter.Vec) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, l := range w.lost {
		for i := range vecs {
			if v := &vecs[i]; v.Addr < l.end && v.Addr+uint64(len(v.Buf)) > l.addr {
				return failure.New("registered memory", syscall.EFAULT, "%s", l.why)
			}
		}
	}
	return nil
}

func (w *watched) ReadV(vecs []adapter.Vec) error {
	if err := w.check(vecs); err != nil {
		return err
	}
	return w.process.ReadV(vecs)
}

func (w *watched) WriteV(vecs []adapter.Vec) error {
	if err := w.check(vecs); err != nil {
		return err
	}
	return w.process.WriteV(vecs)
}

func (w *watched) Read(addr uint64, dst []byte) error {
	return w.ReadV([]adapter.Vec{{Addr: addr, Buf: dst}})
}
func (w *watched) Write(addr uint64, src []byte) error {
	return w.WriteV([]adapter.Vec{{Addr: addr, Buf: src}})
}

// register gives the memory the range of a region that was registered, for the first time or again.
func (w *watched) register(addr, length uint64, access uint32) {
	const writes = 1<<0 | 1<<1 | 1<<3 | 1<<4 // local and remote writing, atomics, windows
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addr, w.length, w.write, w.lost = addr, length, access&writes != 0, nil
}

// access returns access flags with the rights that the region was registered with.
func (w *watched) access() uint32 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.write {
		return 1
	}
	return 0
}

// change notes a change, and returns what it means for the region; the empty text if it means nothing.
func (w *watched) change(c *procmem.Change) string {
	const page = 4096
	w.mu.Lock()
	defer w.mu.Unlock()
	// Whole pages change.
	from, to := c.Addr&^(page-1), (c.Addr+c.Length+page-1)&^(page-1)
	if from >= w.addr+w.length || to <= w.addr {
		return ""
	}
	from, to = max(from, w.addr), min(to, w.addr+w.length)
	if !c.Gone && (c.Writable || !w.write && c.Readable) {
		// mprotect gives back what it has taken.
		w.lost = slices.DeleteFunc(w.lost, func(l lostPages) bool { return l.protected && l.addr >= from && l.end <= to })
		return ""
	}
	why := fmt.Sprintf("%s of %#x-%#x in %s (%#x+%d), which is registered: %s", c.Call, from, to, w.name, w.addr, w.length, c.Where)
	if len(w.lost) < mostLost {
		w.lost = append(w.lost, lostPages{from, to, !c.Gone, why})
	}
	return why
}

// mostLost bounds the ranges of one region. Beyond that, transfers find the memory as it is.
const mostLost = 1 << 10

// watchMemory returns the memory for a region of a device that watches registered memory: the pages of a
// region with on-demand paging are not pinned, and may change.
func (c *command) watchMemory(m *memory, access uint32) (adapter.Memory, *watched) {
	const onDemand = 1 << 6
	if !c.file.dev.watches || access&onDemand != 0 {
		return m, nil
	}
	w := &watched{memory: m, pid: c.Process()}
	return w, w
}

// MemoryChanged notes a change of a process's memory, and returns what it means for the regions that are
// registered there.
func (d *Device) MemoryChanged(change procmem.Change) (meanings []string) {
	d.watchedMu.Lock()
	defer d.watchedMu.Unlock()
	for w := range d.watched {
		if w.pid != change.Process {
			continue
		}
		if why := w.change(&change); why != "" {
			meanings = append(meanings, why)
		}
	}
	return meanings
}

// watch begins to watch the memory of a region, and unwatch ends that.
func (d *Device) watch(w *watched) {
	d.watchedMu.Lock()
	defer d.watchedMu.Unlock()
	if d.watched == nil {
		d.watched = map[*watched]struct{}{}
	}
	d.watched[w] = struct{}{}
}

func (d *Device) unwatch(w *watched) {
	d.watchedMu.Lock()
	defer d.watchedMu.Unlock()
	delete(d.watched, w)
}
