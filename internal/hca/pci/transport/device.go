package transport

import "github.com/softmkey/softmkey/internal/hca/pci/guestmem"

// ConfigSize is the size of the configuration space in bytes.
const ConfigSize = 4096

// Device is a PCI device. Its methods are not called concurrently and must not wait for the
// client.
type Device interface {
	ReadConfig(off int, b []byte)     // b lies in the configuration space
	WriteConfig(off int, b []byte)    //
	ReadBAR(off uint64, b []byte)     // b lies in BAR 0
	WriteBAR(off uint64, b []byte)    //
	BARSize() uint64                  // of BAR 0
	Vectors() int                     // MSI-X vectors, at most 64
	Reset()                           // forgets everything; it touches the guest's memory no more
	Attach(*guestmem.Map, Interrupts) // a client has come; called once
}

// Interrupts raises the interrupts of a device. Raise is safe for concurrent use and does
// not block.
type Interrupts interface {
	Raise(vector int)
}
