package dek

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/xts"
)

// Secrets are in slots, which are parts of chunks of locked pages. With a page
// for each secret, a program would soon reach the limit of locked memory, often
// a few megabytes.
const (
	slotSize  = 2048
	chunkSize = 16 << 10 // a multiple of the page size; where pages are 64 KiB, mmap rounds up
)

// A slot must hold an expanded key, a keytag and a block.
var _ [slotSize - aesxts.MemorySize - KeyTagSize - xts.BlockSize]struct{}

// slot is slotSize bytes of locked memory, zero when allocated.
type slot struct {
	c     *chunk
	index int
}

// chunk is a piece of locked memory with its free slots.
type chunk struct {
	// memory points to chunkSize bytes. Package fmt prints the content behind other
	// pointers, for example for a wrong verb, but never behind this type.
	memory unsafe.Pointer
	free   []int
}

// arena holds all chunks of the process.
var arena struct {
	sync.Mutex
	chunks map[*chunk]struct{}
}

// allocate returns a slot. The error gives the reason why the system refused
// locked memory.
func allocate() (slot, error) {
	arena.Lock()
	defer arena.Unlock()
	for c := range arena.chunks {
		if n := len(c.free); n > 0 {
			i := c.free[n-1]
			c.free = c.free[:n-1]
			return slot{c, i}, nil
		}
	}
	m, err := lockedPages(chunkSize)
	if err != nil {
		return slot{}, err
	}
	c := &chunk{memory: unsafe.Pointer(&m[0])}
	for i := 1; i < chunkSize/slotSize; i++ {
		c.free = append(c.free, i)
	}
	if arena.chunks == nil {
		arena.chunks = map[*chunk]struct{}{}
	}
	arena.chunks[c] = struct{}{}
	return slot{c, 0}, nil
}

// noLockedMemory returns the error of an operation for which allocate failed.
func noLockedMemory(op string, err error) error {
	return &operr.Error{Op: op, Errno: syscall.ENOMEM, Reason: "no locked memory for keys: see RLIMIT_MEMLOCK", Err: err}
}

// bytes returns the whole chunk.
func (c *chunk) bytes() []byte { return unsafe.Slice((*byte)(c.memory), chunkSize) }

func (s slot) bytes() []byte { return s.c.bytes()[s.index*slotSize:][:slotSize:slotSize] }

// free overwrites the slot and releases it. An empty chunk is unmapped.
func (s slot) free() {
	clear(s.bytes())
	arena.Lock()
	defer arena.Unlock()
	s.c.free = append(s.c.free, s.index)
	if len(s.c.free) == chunkSize/slotSize {
		delete(arena.chunks, s.c)
		unlockPages(s.c.bytes())
	}
}
