package umlpci

import (
	"sync"

	"github.com/softmkey/softmkey/internal/hca/pci/transport"
)

const (
	capMSIX       = 0x11 // identifier of the capability
	entrySize     = 16   // of the MSI-X table
	entryMasked   = 1
	msixEnable    = 1 << 15
	msixMasked    = 1 << 14
	firstCap      = 0x34 // byte of the configuration space
	maxCapability = 48   // of a configuration space with 256 bytes: more is a loop
)

// vectors are the MSI-X vectors: the table that the kernel writes, and the queue of messages to
// it. A vector waits while it is masked, and while the kernel has no buffer in the queue.
type vectors struct {
	control int    // offset of the capability's control register in the configuration space
	offset  uint64 // of the table in BAR 0

	mu      sync.Mutex // guards the following fields
	table   []byte
	enabled bool
	pending uint64            // by vector
	queue   *queue            // nil: stopped
	call    *transport.Signal // tells the kernel of messages; nil: none
}

// init finds the table of a device with n vectors.
func (v *vectors) init(read func(off int, b []byte), n int) {
	v.table = make([]byte, entrySize*n)
	for i := range n {
		v.table[entrySize*i+12] = entryMasked
	}
	var b [8]byte
	at := firstCap
	for range maxCapability {
		read(at, b[:1])
		if at = int(b[0]); at < 0x40 || at > 0xf8 {
			return
		}
		if read(at, b[:]); b[0] == capMSIX {
			v.control, v.offset = at+2, uint64(le.Uint32(b[4:])&^7)
			return
		}
		at++ // the next capability's offset
	}
}

// Raise implements transport.Interrupts.
func (v *vectors) Raise(vector int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vector >= 0 && vector < len(v.table)/entrySize && v.enabled {
		v.pending |= 1 << vector
		v.deliver()
	}
}

// configured takes the control register after a write to the configuration space.
func (v *vectors) configured(control uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.enabled = control&msixEnable != 0 && control&msixMasked == 0; control&msixEnable == 0 {
		v.pending = 0
	}
	v.deliver()
}

// access executes an access of the table. done: the range lies there.
func (v *vectors) access(off uint64, b []byte, write bool) (done bool) {
	if v.control == 0 || off < v.offset || off-v.offset > uint64(len(v.table)) || uint64(len(b)) > uint64(len(v.table))-(off-v.offset) {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.table[off-v.offset:]
	if !write {
		copy(b, at)
		return true
	}
	copy(at, b)
	v.deliver()
	return true
}

// deliver sends the messages of vectors that wait, as far as the kernel has buffers. v.mu is held.
// A queue that fails is stopped: the kernel has put it outside of its memory.
func (v *vectors) deliver() {
	if v.queue == nil || !v.enabled {
		return
	}
	sent := false
	for i := range len(v.table) / entrySize {
		entry := v.table[entrySize*i:][:entrySize]
		if v.pending&(1<<i) == 0 || entry[12]&entryMasked != 0 {
			continue
		}
		c, ok, err := v.queue.next(nil)
		if err == nil && !ok {
			var more bool
			if more, err = v.queue.sleep(); more && err == nil {
				c, ok, err = v.queue.next(nil)
			}
		}
		if err == nil && ok {
			message := []byte{opMSI, 0, 0, 0}
			message = le.AppendUint32(message, 4)
			message = append(message, entry[:12]...) // the address and the data
			err = v.queue.finish(&c, message)
		}
		if err != nil {
			v.queue = nil
			return
		}
		if !ok {
			break
		}
		v.pending &^= 1 << i
		sent = true
	}
	if sent {
		if wants, err := v.queue.interested(); err == nil && wants {
			v.call.Send()
		}
	}
}

// kicked looks for buffers that the kernel has given.
func (v *vectors) kicked() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deliver()
}

// setQueue gives the vectors another queue; nil: none.
func (v *vectors) setQueue(q *queue) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = q
}

// setCall sets the descriptor that tells the kernel of messages, and owns it.
func (v *vectors) setCall(s *transport.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.call.Close()
	v.call = s
}
