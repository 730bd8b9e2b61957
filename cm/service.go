package cm

import (
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/verbs"
)

// services holds the connection manager of each device that uses one. A device has only
// one, because the user of QP 1 refuses requests that it does not know.
var services = struct {
	mu sync.Mutex
	m  map[*verbs.Device]*service
}{m: make(map[*verbs.Device]*service)}

// service is the connection manager of a device. It ends when it is unused and its last
// connection has left time wait.
type service struct {
	*cmcore.Service
	dev  *verbs.Device
	uses int // calls in progress, guarded by services.mu
}

// use returns the connection manager of a device; done ends the use. Listeners and
// connections that the caller has created keep the manager alive.
func use(dev *verbs.Device) (s *service, done func(), err error) {
	services.mu.Lock()
	defer services.mu.Unlock()
	s = services.m[dev]
	if s == nil {
		s = &service{dev: dev}
		s.Service, err = cmcore.Open(engine.PortOf(dev), dev.UDPPort(), cmcore.Options{GUID: guid(dev.Addr()), Empty: s.end})
		if err != nil {
			return nil, nil, err
		}
		services.m[dev] = s
	}
	s.uses++
	return s, func() {
		services.mu.Lock()
		s.uses--
		services.mu.Unlock()
		s.end()
	}, nil
}

// linger is the time that an idle service stays, so that its last message, for example a
// refusal, is sent.
const linger = time.Second

// end closes the service if it is idle, and is still idle some time later.
func (s *service) end() {
	if s.Idle() {
		time.AfterFunc(linger, s.reap)
	}
}

func (s *service) reap() {
	services.mu.Lock()
	defer services.mu.Unlock()
	if s.uses == 0 && services.m[s.dev] == s && s.Idle() {
		delete(services.m, s.dev)
		s.Close()
	}
}

// guid derives a node GUID from a device's address, in the form of GUIDs that no
// manufacturer assigned.
func guid(a netip.Addr) uint64 {
	h := fnv.New64a()
	b := a.As16()
	h.Write(b[:])
	return h.Sum64()&^(3<<56) | 2<<56
}
