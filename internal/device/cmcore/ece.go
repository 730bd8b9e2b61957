package cmcore

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/roce"
)

// ECE holds the options of enhanced connection establishment in a REQ or REP:
// vendor-specific extensions for two devices of the same kind. The zero value means none.
type ECE struct {
	Vendor  uint32 // 24 bits
	Options uint32
}

// vendor is the vendor number of options that this package exchanges itself: the
// capabilities of the transport. It has the form of a locally administered OUI. Other
// implementations do not know it and answer without options.
const vendor = 0x02736b

// own returns the options that the device offers.
func (s *Service) own(t mad.Transport) ECE {
	if t != mad.RC || s.o.Caps == nil {
		return ECE{}
	}
	return ECE{vendor, s.o.Caps()}
}

// agree returns the options that both ends have.
func agree(own, peer ECE) ECE {
	if both := roce.CommonCaps(own.Options, peer.Options); own.Vendor == vendor && peer.Vendor == vendor && both != 0 {
		return ECE{vendor, both}
	}
	return ECE{}
}

// applications returns the options for the application: none if they are those of the
// device.
func (e ECE) applications() ECE {
	if e.Vendor == vendor {
		return ECE{}
	}
	return e
}

// Caps returns the capabilities of the transport that both ends have. They are known when
// the REQ (on the accepting side) or the REP (on the connecting side) has come.
func (c *Conn) Caps() uint32 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.agreed.Options
}

// Caps returns the capabilities of the transport that both ends of a connection have. The
// connection is given by the peer's address and QP number; without one, Caps returns 0. It
// serves programs that modify their QP to RTR themselves.
func (s *Service) Caps(remote netip.Addr, qpn uint32) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.qpns[remoteKey{remote.Unmap(), qpn}]; c != nil {
		return c.agreed.Options
	}
	return 0
}
