package pci

import (
	"errors"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/operr"
)

// errNoMaster is the error of an access to the guest's memory while the function is not a bus
// master.
var errNoMaster = &operr.Error{Op: "guest memory", Errno: syscall.EFAULT, Reason: "bit 2 (bus master) of the PCI command register is 0: the function may not access memory"}

// notMaster reports whether an access failed because the function is not a bus master. Nothing is
// wrong with the queue then.
func notMaster(err error) bool { return errors.Is(err, errNoMaster) }

// dma is the guest's memory and its interrupts as the function reaches them: only while the guest
// has the bit Bus Master Enable set. An MSI-X message is a write to memory, so the bit is for both.
type dma struct {
	mem *guestmem.Map
	irq transport.Interrupts

	mu      sync.RWMutex // held for reading during accesses: none is under way when set returns
	enabled bool
}

// set allows accesses or refuses them, and reports whether they were allowed before.
func (m *dma) set(enabled bool) (before bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, m.enabled = m.enabled, enabled
	return before
}

// master reports whether accesses are allowed now.
func (m *dma) master() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.enabled
}

// with calls f while accesses are allowed.
func (m *dma) with(f func() error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.enabled {
		return errNoMaster
	}
	return f()
}

// Read implements adapter.Memory.
func (m *dma) Read(addr uint64, dst []byte) error {
	return m.with(func() error { return m.mem.Read(addr, dst) })
}

// Write implements adapter.Memory.
func (m *dma) Write(addr uint64, src []byte) error {
	return m.with(func() error { return m.mem.Write(addr, src) })
}

// ReadV implements adapter.Memory.
func (m *dma) ReadV(vecs []adapter.Vec) error {
	return m.with(func() error { return m.mem.ReadV(vecs) })
}

// WriteV implements adapter.Memory.
func (m *dma) WriteV(vecs []adapter.Vec) error {
	return m.with(func() error { return m.mem.WriteV(vecs) })
}

// Map implements adapter.Memory. Memory that may be refused at any time can only be copied.
func (m *dma) Map(addr uint64, n int) []byte { return nil }

// Raise implements transport.Interrupts.
func (m *dma) Raise(vector int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.enabled {
		m.irq.Raise(vector)
	}
}
