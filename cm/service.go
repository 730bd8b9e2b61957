package cm

import (
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/cmcore"
	"github.com/softmkey/softmkey/verbs"
)

// services has the connection manager of each device that uses one. A device has
// one only, because whoever answers on QP 1 refuses what it does not know.
var services = struct {
	mu sync.Mutex
	m  map[*verbs.Device]*service
}{m: make(map[*verbs.Device]*service)}

// service is the connection manager of a device. It ends when nobody uses it and
// its last connection has left time wait.
type service struct {
	*cmcore.Service
	dev  *verbs.Device
	uses int // calls under way, guarded by services.mu
}

// use returns the connection manager of a device; done ends the use. What the
// caller made with it meanwhile keeps it alive.
func use(dev *verbs.Device) (s *service, done func(), err error) {
	services.mu.Lock()
	defer services.mu.Unlock()
	s = services.m[dev]
	if s == nil {
		s = &service{dev: dev}
		s.Service, err = cmcore.Open(dev.Transport(), dev.Transport().LocalAddr().Port(), cmcore.Options{GUID: guid(dev.Addr()), Empty: s.end})
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

// linger is how long an idle service stays: until the last message that it sent,
// a refusal for example, has left.
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

// guid derives a node GUID from the address of a device: one that the
// manufacturer did not assign.
func guid(a netip.Addr) uint64 {
	h := fnv.New64a()
	b := a.As16()
	h.Write(b[:])
	return h.Sum64()&^(3<<56) | 2<<56
}
