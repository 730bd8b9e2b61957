package rdmacm

import (
	"net/netip"
	"syscall"
)

// Record is a line of a trace: a command that a program wrote, or an event that was
// queued for it.
type Record struct {
	Process Process // writer of the command; nil for an event
	ID      uint32  // number of the id or of the multicast group
	Action  string  // the command, or the name of the event
	Event   bool

	Errno  syscall.Errno // reason for refusing the command; 0 if it was executed
	Reason error         // more about Errno; may be nil
	Status int32         // of the event

	// Local and Remote are the addresses of the id after the command, invalid if it
	// has none.
	Local, Remote netip.AddrPort
}

func (m *Manager) record(r Record) {
	if m.trace != nil {
		m.trace(r)
	}
}
