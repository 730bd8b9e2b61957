package cmcore

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// The range that ephemeral ports are taken from.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

type portKey struct {
	space mad.PortSpace
	port  uint16
}

// Port is a reserved port number of a port space.
type Port struct {
	s     *Service
	key   portKey
	local netip.Addr
	reuse bool
}

// Bind reserves a port of a port space for a local address. The invalid address stands for
// all addresses, an unspecified one for all addresses of its family. Port 0 takes a free
// port. Bind returns EADDRINUSE if the port is reserved for an address that is included,
// unless both were bound with reuse.
func (s *Service) Bind(space mad.PortSpace, local netip.Addr, port uint16, reuse bool) (*Port, error) {
	s.mu.Lock()
	defer s.unlock()
	local = local.Unmap()
	if port != 0 {
		if !s.bindable(portKey{space, port}, local, reuse) {
			return nil, failure.New("cm bind", syscall.EADDRINUSE, "port %d of port space %#x: reserved already", port, uint16(space))
		}
		return s.reserve(portKey{space, port}, local, reuse), nil
	}
	const n = lastEphemeral - firstEphemeral + 1
	first := s.o.Rand() % n
	for i := range uint32(n) {
		key := portKey{space, uint16(firstEphemeral + (first+i)%n)}
		if len(s.ports[key]) == 0 {
			return s.reserve(key, local, reuse), nil
		}
	}
	return nil, failure.New("cm bind", syscall.EADDRNOTAVAIL, "no free port in port space %#x", uint16(space))
}

func (s *Service) bindable(key portKey, local netip.Addr, reuse bool) bool {
	for _, p := range s.ports[key] {
		if p.reuse && reuse {
			continue
		}
		if covers(p.local, local) || covers(local, p.local) {
			return false
		}
	}
	return true
}

// covers reports whether the local address of a port or a listener includes the address a: the
// invalid one includes every address, an unspecified one every address of its family.
func covers(local, a netip.Addr) bool {
	return !local.IsValid() || local == a || a.IsValid() && local.IsUnspecified() && local.Is4() == a.Is4()
}

func (s *Service) reserve(key portKey, local netip.Addr, reuse bool) *Port {
	p := &Port{s: s, key: key, local: local, reuse: reuse}
	s.ports[key] = append(s.ports[key], p)
	return p
}

// Num returns the port number.
func (p *Port) Num() uint16 { return p.key.port }

// ServiceID returns the service ID of the port.
func (p *Port) ServiceID() uint64 { return mad.ServiceID(p.key.space, p.key.port) }

// Close gives the port back. A second Close does nothing.
func (p *Port) Close() {
	p.s.mu.Lock()
	defer p.s.unlock()
	remove(p.s.ports, p.key, p)
}
