package rdmacm

import (
	"net/netip"
	"syscall"
)

// Record is a line of a trace: a command that a program wrote, or an event that was
// queued for one.
type Record struct {
	Process Process // that wrote the command; nil for an event
	ID      uint32  // number of the id or of the multicast group
	Action  string  // the command, or the name of the event
	Event   bool

	Errno  syscall.Errno // why the command was refused; 0 if it was not
	Status int32         // of the event

	// Local and Remote are the addresses of the id after the command; those that it
	// does not have are invalid.
	Local, Remote netip.AddrPort
}

func (m *Manager) record(r Record) {
	if m.trace != nil {
		m.trace(r)
	}
}
