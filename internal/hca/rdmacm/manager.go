package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/device/cmcore"
)

// maxIDs limits the ids and multicast groups of a supervisor. An id causes few events, so
// this also limits the events, except for those that peers cause by requesting
// connections. For these, maxRequests limits the number of pending events on a file
// beyond which requests, and events that the program writes, are refused.
const (
	maxIDs      = 1 << 16
	maxRequests = 1 << 12
)

// Process is the program that writes a command.
type Process interface {
	// Read and Write copy from and to the memory of the program. An error means
	// EFAULT.
	Read(addr uint64, p []byte) error
	Write(addr uint64, p []byte) error

	// File returns the File of a descriptor of the program, or nil if the descriptor
	// is of another kind.
	File(fd int) *File
}

// Device is an RDMA device for connections.
type Device struct {
	Service  *cmcore.Service
	NodeGUID uint64
	Port     uint8 // port number, 1
	MTU      int   // active MTU, in bytes

	// GIDs are the addresses of the device by GID index. The invalid address marks an
	// index that cannot be used for connections.
	GIDs []netip.Addr

	// Left is told the number of a queue pair of the device whose peer has ended the connection. nil: nobody is told.
	Left func(qpn uint32)
}

// gid returns the GID index of an address, -1 if the device does not have it.
func (d *Device) gid(a netip.Addr) int {
	for i, g := range d.GIDs {
		if g.IsValid() && g.Unmap() == a.Unmap() {
			return i
		}
	}
	return -1
}

// mtu returns the active MTU as enum ibv_mtu.
func (d *Device) mtu() uint8 {
	for m := uint8(5); m > 1; m-- {
		if d.MTU >= 128<<m {
			return m
		}
	}
	return 1
}

// Manager holds the ids of all programs of a supervisor. It is safe for concurrent use.
//
// Handlers of the connection manager only queue functions, which a goroutine of the
// Manager calls. Commands may therefore call the connection manager with the lock held.
type Manager struct {
	trace func(Record)
	host  Host

	attaching sync.Mutex // held while a device is attached, so that an address gets one device

	mu      sync.Mutex // guards the following fields, and those of File, id and group
	devices []*Device
	ids     map[uint32]*id
	groups  map[uint32]*group
	numbers number.Range // of ids and groups

	queue happenings
	ended sync.WaitGroup
}

// happenings are functions that the goroutine of the Manager calls, in order,
// with the lock held.
type happenings struct {
	mu     sync.Mutex // guards the following fields
	list   []func() (after func())
	news   chan struct{}
	closed bool
}

// Config configures a Manager.
type Config struct {
	Devices []Device // devices that the programs see at first

	// Host is the host of the devices. Without it, the programs have the addresses of
	// Devices only.
	Host Host

	// Trace, if not nil, receives a record of each command and event. It is called
	// with the lock of the Manager held and must not block.
	Trace func(Record)
}

// New makes a Manager.
func New(c Config) *Manager {
	m := &Manager{trace: c.Trace, host: c.Host, ids: make(map[uint32]*id), groups: make(map[uint32]*group)}
	for i := range c.Devices {
		m.devices = append(m.devices, &c.Devices[i])
	}
	m.queue.news = make(chan struct{}, 1)
	m.ended.Go(m.run)
	return m
}

// linger is the time for which Close waits for the answers to DREQs: five transmissions.
const linger = 2500 * time.Millisecond

// Close destroys all ids and ends the Manager's goroutine. It waits until the peers of the
// connections have answered, at most for the time linger, because nobody repeats a lost
// DREQ after the end of the service.
func (m *Manager) Close() {
	m.mu.Lock()
	for _, i := range m.ids {
		i.destroy()
	}
	m.mu.Unlock()
	m.queue.mu.Lock()
	m.queue.closed = true
	m.queue.mu.Unlock()
	m.queue.signal()
	m.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	m.mu.Lock()
	devices := m.devices
	m.mu.Unlock()
	for _, d := range devices {
		d.Service.Drain(ctx)
	}
}

// SetGIDs replaces the addresses of the device with a service, by GID index.
func (m *Manager) SetGIDs(s *cmcore.Service, gids []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.devices {
		if d.Service == s {
			d.GIDs = gids
		}
	}
}

// Removed reports to the programs that the device with a service has failed: each of its ids gets the
// event device removal.
func (m *Manager) Removed(s *cmcore.Service) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.ids {
		if i.dev != nil && i.dev.Service == s {
			i.soon(eventDeviceRemoval, nil)
		}
	}
}

func (q *happenings) signal() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// happened queues f. The Manager's goroutine calls f with the lock held, and then calls
// the function that f returns without it.
func (m *Manager) happened(f func() (after func())) {
	m.queue.mu.Lock()
	if !m.queue.closed {
		m.queue.list = append(m.queue.list, f)
	}
	m.queue.mu.Unlock()
	m.queue.signal()
}

// busy reports whether so many functions are queued that requests of peers must wait.
func (m *Manager) busy() bool {
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	return len(m.queue.list) >= maxRequests
}

func (m *Manager) run() {
	for {
		m.queue.mu.Lock()
		list, closed := m.queue.list, m.queue.closed
		m.queue.list = nil
		m.queue.mu.Unlock()
		for _, f := range list {
			m.mu.Lock()
			after := f()
			m.mu.Unlock()
			if after != nil {
				after()
			}
		}
		if len(list) > 0 {
			continue
		}
		if closed {
			return
		}
		<-m.queue.news
	}
}

// newNumber returns a number that no id and no group has, or ENOMEM if there are too
// many.
func (m *Manager) newNumber() (uint32, syscall.Errno) {
	if len(m.ids)+len(m.groups) >= maxIDs {
		return 0, syscall.ENOMEM
	}
	for {
		if n := number.Next(&m.numbers, m.ids); m.groups[n] == nil {
			return n, 0
		}
	}
}

// File is one open of the device.
type File struct {
	m       *Manager
	pending func(delta int)

	// The following fields are guarded by the Manager's lock.
	closed  bool
	ids     map[uint32]*id
	events  []*event
	waiters []*waiter
}

// Open opens the device. pending is called with 1 when an event was queued that a
// GET_EVENT can fetch, and with -1 when it was fetched or dropped: the descriptor is
// readable while the sum is positive. It is called with a lock held and must not call
// back.
func (m *Manager) Open(pending func(delta int)) *File {
	return &File{m: m, pending: pending, ids: make(map[uint32]*id)}
}

// Close destroys the ids of the file. Waiting commands continue to wait, as in the kernel
// when one thread of a program closes a descriptor on which another waits. The function
// that [File.Write] returned ends them.
func (f *File) Close() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.closed = true
	for _, i := range f.ids {
		i.destroy()
	}
}

// waiter is a GET_EVENT that waits for an event.
type waiter struct {
	p        Process
	response uint64
	out      int
	n        int
	done     func(n int, errno syscall.Errno)
}

// command describes a command.
type command struct {
	name     string
	in       int // the bytes that it needs
	response int // offset of the address for its answer; -1: it has none
	out      int // length of the answer
	id       int // offset of the number of the id that it is about

	// run executes a command on an id, file one that is not about an id of the file.
	// The lock is held.
	run  func(i *id, in []byte) (answer []byte, errno syscall.Errno)
	file func(f *File, p Process, in []byte) (answer []byte, errno syscall.Errno)
}

var commands = map[uint32]command{
	cmdCreateID:     {name: "create", in: 24, response: 8, out: 4, file: (*File).createID},
	cmdDestroyID:    {name: "destroy", in: 16, response: 0, out: 4, id: 8, run: (*id).destroyID},
	cmdBindIP:       {name: "bind", in: 40, response: -1, id: 36, run: (*id).bindAddr},
	cmdBind:         {name: "bind", in: 8 + storageLen, response: -1, id: 0, run: (*id).bindAddr},
	cmdResolveIP:    {name: "resolve address", in: 64, response: -1, id: 56, run: (*id).resolveAddr},
	cmdResolveAddr:  {name: "resolve address", in: 16 + 2*storageLen, response: -1, id: 0, run: (*id).resolveAddr},
	cmdResolveRoute: {name: "resolve route", in: 8, response: -1, id: 0, run: (*id).resolveRoute},
	cmdQueryRoute:   {name: "query route", in: 16, response: 0, out: oldRouteLen, id: 8, run: (*id).queryRoute},
	cmdQuery:        {name: "query", in: 16, response: 0, id: 8, run: (*id).queryAny},
	cmdConnect:      {name: "connect", in: connParamLen + 8, response: -1, id: connParamLen, run: (*id).connect},
	cmdListen:       {name: "listen", in: 8, response: -1, id: 0, run: (*id).listen},
	cmdAccept:       {name: "accept", in: 8 + connParamLen + 8, response: -1, id: 8 + connParamLen, run: (*id).accept},
	cmdReject:       {name: "reject", in: 8 + privateLen, response: -1, id: 0, run: (*id).reject},
	cmdDisconnect:   {name: "disconnect", in: 4, response: -1, id: 0, run: (*id).disconnect},
	cmdInitQPAttr:   {name: "query QP attributes", in: 16, response: 0, out: qpAttrLen, id: 8, run: (*id).initQPAttr},
	cmdSetOption:    {name: "set option", in: optionLen, response: -1, id: 8, run: (*id).setOption},
	cmdNotify:       {name: "notify", in: 8, response: -1, id: 0, run: (*id).notify},
	cmdJoinIPMcast:  {name: "join", in: 48, response: 0, out: 4, id: 44, run: (*id).joinIPMcast},
	cmdJoinMcast:    {name: "join", in: 24 + storageLen, response: 0, out: 4, id: 16, run: (*id).joinMcast},
	cmdWriteEvent:   {name: "write event", in: writeEventLen, response: -1, id: 0, run: (*id).writeEvent},
	cmdLeaveMcast:   {name: "leave", in: 16, response: 0, out: 4, file: (*File).leaveMcast},
	cmdMigrateID:    {name: "migrate", in: 16, response: 0, out: 4, file: (*File).migrateID},
}

// execute executes a command and traces it. w is the way to the address that the command
// names, room that for the answer. The lock is held.
func (f *File) execute(c command, p Process, in []byte, w way, room int) (answer []byte, errno syscall.Errno) {
	if f.closed {
		return nil, syscall.EBADF
	}
	if c.file != nil {
		if answer, errno = c.file(f, p, in); errno != 0 {
			f.m.record(Record{Process: p, Action: c.name, Errno: errno, Reason: whyNot(in, c.name, errno)})
			return nil, errno
		}
		f.m.record(Record{Process: p, ID: ne.Uint32(answer), Action: c.name})
		return answer, 0
	}
	num := ne.Uint32(in[c.id:])
	i := f.ids[num]
	if i == nil {
		f.m.record(Record{Process: p, ID: num, Action: c.name, Errno: syscall.ENOENT})
		return nil, syscall.ENOENT
	}
	i.way, i.why, i.room = w, nil, room
	answer, errno = c.run(i, in)
	r := Record{Process: p, ID: num, Action: c.name, Errno: errno, Local: i.src, Remote: i.dst}
	if w.err != nil && (errno == syscall.EADDRNOTAVAIL || errno == syscall.ENETUNREACH) {
		errno = errnoOf(w.err)
		r.Errno, r.Reason = errno, w.err
	} else if errno != 0 {
		r.Reason = i.why
	}
	f.m.record(r)
	return answer, errno
}

// whyNot returns the reason for which a command that is not about an id was refused, as far as
// the errno does not say it.
func whyNot(in []byte, name string, errno syscall.Errno) error {
	if name == commands[cmdCreateID].name && errno == syscall.EINVAL {
		return failure.New(name, errno, "port space %#x with QP type %d: the spaces are TCP, UDP, IPoIB and, for RC, UC, UD and XRC, IB", ne.Uint16(in[16:]), in[18])
	}
	return nil
}

// never is the cancel function of a command that has ended already: nothing is left to cancel.
func never() bool { return false }

// refuse ends a command with an errno.
func refuse(done func(n int, errno syscall.Errno), errno syscall.Errno) (cancel func() bool) {
	done(0, errno)
	return never
}

// Write executes one command: the bytes that the program passed to write(2). done is
// called once with the result of write(2): on this goroutine or, if the command waits,
// later on another. Only GET_EVENT without O_NONBLOCK waits. The function that Write
// returns ends the wait without a call of done, and reports whether there was one.
func (f *File) Write(p Process, b []byte, nonblock bool, done func(n int, errno syscall.Errno)) (cancel func() bool) {
	if len(b) < headerLen {
		return refuse(done, syscall.EINVAL)
	}
	cmd, n, out := ne.Uint32(b), int(ne.Uint16(b[4:])), int(ne.Uint16(b[6:]))
	if headerLen+n > len(b) {
		return refuse(done, syscall.EINVAL)
	}
	in := b[headerLen : headerLen+n]
	if cmd == cmdGetEvent {
		return f.getEvent(p, in, out, len(b), nonblock, done)
	}
	c, ok := commands[cmd]
	switch {
	case !ok:
		f.m.record(Record{Process: p, Action: fmt.Sprintf("command %d", cmd), Errno: syscall.EINVAL, Reason: failure.New("rdma_cm", syscall.EINVAL, "command %d is not offered", cmd)})
		return refuse(done, syscall.EINVAL)
	case n < c.in:
		f.m.record(Record{Process: p, Action: c.name, Errno: syscall.EINVAL, Reason: failure.New(c.name, syscall.EINVAL, "%d bytes: the command has %d", n, c.in)})
		return refuse(done, syscall.EINVAL)
	case out < c.out:
		f.m.record(Record{Process: p, Action: c.name, Errno: syscall.ENOSPC, Reason: failure.New(c.name, syscall.ENOSPC, "room for %d bytes: the answer has %d", out, c.out)})
		return refuse(done, syscall.ENOSPC)
	}
	w, ok := addresses(cmd, in)
	if !ok {
		// librdmacm binds an AF_IB address once, to find out whether the kernel has that family.
		if cmd != cmdBind || ne.Uint16(in[8:]) != familyIB {
			f.m.record(Record{Process: p, Action: c.name, Errno: syscall.EINVAL, Reason: failure.New(c.name, syscall.EINVAL, "addresses are of IPv4 or IPv6, with their size")})
		}
		return refuse(done, syscall.EINVAL)
	}
	f.find(&w, ne.Uint32(in[c.id:]))
	if cmd == cmdSetOption {
		in = withOption(p, in)
	}
	f.m.mu.Lock()
	answer, errno := f.execute(c, p, in, w, out)
	f.m.mu.Unlock()
	answer = answer[:min(len(answer), out)] // libraries from before a field have less room
	if errno == 0 && c.response >= 0 && p.Write(ne.Uint64(in[c.response:]), answer) != nil {
		errno = syscall.EFAULT
		if cmd == cmdCreateID {
			// The program does not know the number of the id.
			f.m.mu.Lock()
			if i := f.ids[ne.Uint32(answer)]; i != nil {
				i.destroy()
			}
			f.m.mu.Unlock()
		}
	}
	if errno != 0 {
		return refuse(done, errno)
	}
	done(len(b), 0)
	return never
}

// errnoOf returns the errno of an error of the connection manager, 0 for none.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return failure.Errno(err, syscall.ENODEV) // the device was closed
}
