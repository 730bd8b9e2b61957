package nvmet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
)

// Options describe a target.
type Options struct {
	NQN        string
	Serial     string
	Namespaces []*Namespace // identifiers 1 and so on
	Hosts      []string     // names of the hosts that may connect; none: all

	// CapsuleData is the number of bytes of data in a command capsule, a multiple of 16.
	CapsuleData int

	// Failed, if not nil, is called for every command that ended with a media or data integrity error.
	Failed func(Failure)
}

// Failure is a command that ended with a media or data integrity error.
type Failure struct {
	Host   string // its NQN
	NSID   uint32
	LBA    uint64
	Opcode nvme.Opcode
	Status nvme.Status
	Bad    *mkey.BadBlock // nil if the error was not one of protection information
}

// Target is a subsystem and its discovery service. It is safe for concurrent use.
type Target struct {
	Options
	began time.Time

	mu          sync.Mutex // guards the following fields
	controllers map[uint16]*controller
	shares      map[share]int // controllers of each
	last        uint16        // the youngest controller's identifier
}

// share is who shares hostControllers: an address and, if the host is one of Options.Hosts, its name.
type share struct {
	addr netip.Addr
	host string
}

// permits reports whether a host may connect.
func (t *Target) permits(host string) bool {
	return len(t.Hosts) == 0 || slices.Contains(t.Hosts, host)
}

// New returns a target.
func New(o Options) (*Target, error) {
	switch {
	case o.NQN == "" || len(o.NQN) > nvme.NQNSize || o.NQN == nvme.DiscoveryNQN:
		return nil, fmt.Errorf("NQN %q: must have 1 to %d bytes, and not be that of discovery", o.NQN, nvme.NQNSize)
	case len(o.Namespaces) == 0:
		return nil, errors.New("no namespace")
	case o.CapsuleData%16 != 0 || o.CapsuleData < 0:
		return nil, fmt.Errorf("%d bytes of data in a capsule: must be a multiple of 16", o.CapsuleData)
	}
	for i, ns := range o.Namespaces {
		if err := ns.check(); err != nil {
			return nil, fmt.Errorf("namespace %d: %w", i+1, err)
		}
	}
	// Two targets of one name must not give a host the same controllers.
	return &Target{Options: o, began: time.Now(), controllers: make(map[uint16]*controller), shares: make(map[share]int), last: uint16(rand.N(0xffef))}, nil
}

// namespace returns a namespace, or nil.
func (t *Target) namespace(id uint32) *Namespace {
	if id == 0 || uint64(id) > uint64(len(t.Namespaces)) {
		return nil
	}
	return t.Namespaces[id-1]
}

// controller is what a host has connected to: an admin queue and its I/O queues (Base 1.6).
type controller struct {
	target    *Target
	id        uint16
	share     share
	admin     *Queue
	host      string
	hostID    [16]byte
	discovery bool

	health struct {
		sync.Mutex // guards the following fields
		nvme.Health
		entries []nvme.ErrorEntry // the last ones, the youngest first
	}

	mu       sync.Mutex // guards the following fields
	cc       uint32
	csts     uint32
	features map[featureValue]uint32
	queues   map[uint16]*Queue
	events   int // Asynchronous Event Requests that wait
	kato     time.Duration
	timer    *time.Timer
	ended    bool
}

// newController makes a controller for an admin queue. It returns nil if the host has too many.
func (t *Target) newController(d nvme.ConnectData, kato uint32, q *Queue) *controller {
	c := &controller{
		target: t, host: d.Host, hostID: d.HostID, discovery: d.Subsystem == nvme.DiscoveryNQN,
		features: defaultFeatures(), queues: map[uint16]*Queue{0: q}, admin: q, share: share{addr: q.peer.Host},
	}
	if len(t.Hosts) > 0 && t.permits(d.Host) {
		c.share.host = d.Host
	}
	if c.discovery && kato == 0 {
		kato = discoveryKeepAlive
	}
	t.mu.Lock()
	if t.shares[c.share] >= hostControllers {
		t.probeLocked(c.share)
		t.mu.Unlock()
		return nil
	}
	t.shares[c.share]++
	for {
		t.last = t.last%0xffef + 1
		if t.controllers[t.last] == nil {
			break
		}
	}
	c.id = t.last
	t.controllers[c.id] = c
	t.mu.Unlock()
	c.mu.Lock()
	c.setKeepAliveLocked(kato)
	c.mu.Unlock()
	return c
}

// probeLocked ends the controllers of a share whose hosts are gone, for a later attempt to connect: without a keep alive
// timer, nothing else does.
func (t *Target) probeLocked(s share) {
	for _, c := range t.controllers {
		if c.share == s && c.admin.peer.Probe != nil {
			c.admin.peer.Probe()
		}
	}
}

// find returns the controller to which a host adds a queue, or nil.
func (t *Target) find(id uint16) *controller {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.controllers[id]
}

// resetLocked makes the controller as Connect has left it: without I/O queues, which it returns, and with default
// features.
func (c *controller) resetLocked() (queues []*Queue) {
	c.csts, c.events = 0, 0
	kato := c.features[featureValue{id: nvme.KeepAliveTimer}]
	c.features = defaultFeatures()
	c.features[featureValue{id: nvme.KeepAliveTimer}] = kato
	for id, q := range c.queues {
		if id != 0 {
			queues = append(queues, q)
			delete(c.queues, id)
		}
	}
	return queues
}

// setKeepAliveLocked sets the time in milliseconds after which the controller ends if no command has come; 0
// means never. It is rounded up to the granularity of keepAliveUnit.
func (c *controller) setKeepAliveLocked(ms uint32) {
	const unit = keepAliveUnit * 100 * time.Millisecond
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.features[featureValue{id: nvme.KeepAliveTimer}] = ms
	c.kato = (time.Duration(ms)*time.Millisecond + unit - 1) / unit * unit
	if c.kato > 0 && !c.ended {
		c.timer = time.AfterFunc(c.kato, c.vanished)
	}
}

// alive restarts the keep-alive timer.
func (c *controller) alive() {
	c.mu.Lock()
	if c.timer != nil && !c.ended {
		c.timer.Reset(c.kato)
	}
	c.mu.Unlock()
}

// vanished ends the controller of a host that does not keep it alive.
func (c *controller) vanished() { c.end(fmt.Errorf("no command of %q within %v", c.host, c.kato)) }

// end ends the controller and the connections of its queues, with the fault if there is one.
func (c *controller) end(err error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	queues := make([]*Queue, 0, len(c.queues))
	for _, q := range c.queues {
		queues = append(queues, q)
	}
	c.mu.Unlock()
	c.target.mu.Lock()
	delete(c.target.controllers, c.id)
	if c.target.shares[c.share]--; c.target.shares[c.share] == 0 {
		delete(c.target.shares, c.share)
	}
	c.target.mu.Unlock()
	for _, q := range queues {
		q.end(err)
	}
}

// failed notes a command that has failed in the error log.
func (c *controller) failed(q *Queue, cmd *nvme.Command, lba uint64, status nvme.Status, bad *mkey.BadBlock) {
	c.health.Lock()
	c.health.Errors++
	if status.OfMedia() {
		c.health.MediaErrors++
	}
	c.health.entries = slices.Insert(c.health.entries, 0, nvme.ErrorEntry{Count: c.health.Errors, SQID: q.id, ID: cmd.ID, Status: status, LBA: lba, NSID: cmd.NSID})
	c.health.entries = c.health.entries[:min(len(c.health.entries), errorEntries)]
	c.health.Unlock()
	if status.OfMedia() && c.target.Failed != nil {
		c.target.Failed(Failure{Host: c.host, NSID: cmd.NSID, LBA: lba, Opcode: cmd.Opcode, Status: status, Bad: bad})
	}
}
