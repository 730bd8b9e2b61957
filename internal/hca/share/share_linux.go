package share

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

// numbers is the number of processes that an address has room for.
const numbers = 1 << netconn.MemberBits

// patience limits the time for which a process waits for another one to answer.
const patience = 5 * time.Second

// joinPatience limits the time for which a process waits until it has joined an address. The others join before it one
// after the other, each in its own time, which is seconds on a busy machine.
const joinPatience = 30 * time.Second

// exitTime is the time that the kernel is expected to need to close all sockets
// of a process that was killed: its names may be free before the address is.
const exitTime = 50 * time.Millisecond

// Conn is one process's part of a shared address. It is a packetconn.Conn and a
// netconn.Member.
type Conn struct {
	netconn.Conn // the socket of the process's number
	m            *member
	close        sync.Once
}

// member is a process at an address.
type member struct {
	local  netip.AddrPort
	opts   *udp.Options
	prefix string // prefix of the names at this address
	number int

	own    *os.File // the socket of the process's number
	lock   lock     // of the process's number
	inbox  inbox    // packets that other processes hand over
	outbox outbox   // connections through which packets are handed over
	wakeup *os.File // an eventfd that ends Wait
	events *os.File // an epoll descriptor: of own, inbox, rings, the socket of QP 1 and wakeup; Wait waits for it
	door   door
	near   *neighbors // nil: packets do not go through rings

	shared atomic.Bool // sockets and mads are set
	mixed  atomic.Bool // GRO is switched off

	// The following fields are used only by Poll and Wait, which take turns.
	arrived bool // the inbox, the socket of QP 1 or the socket of a ring was readable: Poll checks them
	skipped int  // calls of Poll in a row that checked nothing
	turns   int  // calls of Poll in a row that received from the rings: see ringTurns

	mu      sync.Mutex   // guards the following fields
	sockets []*os.File   // see index; nil before a second process has come
	mads    netconn.Conn // the socket of QP 1

	claiming sync.Mutex // guards claims
	claims   map[uint64]*claim
}

// claim is a claimed service id.
type claim struct {
	name  int // descriptor of the listener at the service's name
	users int
}

// The order of the sockets. That of QP 1 comes second, so that the sockets of QP 1 and of
// number 0 are the first ones that exist.
const (
	madsIndex = 1
	sockets   = numbers + 1
)

// index returns the place of a number's socket.
func index(number int) int {
	if number == 0 {
		return 0
	}
	return number + 1
}

// Listen returns a Conn at local. If other processes of the user have Conns there, it joins
// them, unless alone is set: then it returns EADDRINUSE. EUSERS means that no number is free.
func Listen(local netip.AddrPort, opts *udp.Options, alone bool) (*Conn, error) {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	for start := time.Now(); ; {
		c, err := listen(local, opts, alone)
		var busy busyError
		switch waited := time.Since(start); {
		case errors.As(err, &busy) && waited > joinPatience:
			return nil, failure.New("share an address", syscall.EADDRINUSE, "%v: %s", local.Addr(), busy)
		case errors.As(err, &busy):
		case alone || waited > exitTime || !errors.Is(err, syscall.EADDRINUSE):
			return c, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// portError says that another program has the UDP port. The text looks for that program.
type portError struct {
	error
	local netip.AddrPort
}

func (e portError) Error() string {
	return fmt.Sprintf("share an address: %v has a device already: UDP port %d is taken by %s: %v", e.local.Addr(), e.local.Port(), portOwner(e.local), e.error)
}

func (e portError) Unwrap() error { return e.error }

// busyError is the reason why joining has to be tried again.
type busyError string

func (e busyError) Error() string { return string(e) }

func listen(local netip.AddrPort, opts *udp.Options, alone bool) (_ *Conn, err error) {
	m := &member{local: local, opts: opts, claims: make(map[uint64]*claim)}
	m.prefix = prefix(local)
	var joining lock
	if err := joining.take(m.prefix + "/join"); err == errHeld {
		return nil, busyError("another process does not finish joining the address")
	} else if err != nil {
		return nil, err
	}
	defer joining.release()
	defer func() {
		if err != nil {
			m.release()
		}
	}()
	if err := m.takeNumber(alone); err != nil {
		return nil, err
	}
	if err := m.prepareWait(); err != nil {
		return nil, err
	}
	if !alone {
		if m.sockets, err = m.ask(); err != nil {
			return nil, err
		}
	}
	if m.sockets == nil {
		if m.number != 0 {
			return nil, busyError(fmt.Sprintf("the process with number 0 of %d does not answer", m.number))
		}
		if m.own, err = udp.Bind(local, opts, false); errors.Is(err, syscall.EADDRINUSE) {
			err = portError{err, local}
		}
	} else {
		m.own, err = duplicate(m.sockets[index(m.number)])
		if err == nil {
			err = m.startSharing()
		}
		if err == nil {
			unplug(m.own)
		}
	}
	if err != nil {
		return nil, err
	}
	conn, err := duplicate(m.own)
	if err != nil {
		return nil, err
	}
	if err := m.await(conn, socket); err != nil {
		conn.Close()
		return nil, err
	}
	c := &Conn{m: m}
	if c.Conn, err = udp.Open(conn, local, opts, m); err != nil {
		return nil, err
	}
	if err = m.door.open(m); err != nil {
		c.Conn.Close()
		return nil, err
	}
	return c, nil
}

// takeNumber gives m the first free number.
func (m *member) takeNumber(alone bool) (err error) {
	for m.number = range numbers {
		if err = m.lock.take(m.name(m.number, "number")); err != errHeld {
			return err
		}
		if alone {
			return failure.New("share an address", syscall.EADDRINUSE, "%v: another process uses the address", m.local)
		}
	}
	return failure.New("share an address", syscall.EUSERS, "%v: %d processes use the address, which is the limit", m.local, numbers)
}

// prepareWait opens the descriptors of Wait.
func (m *member) prepareWait() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create", err)
	}
	m.events = os.NewFile(uintptr(fd), "epoll")
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	m.wakeup = os.NewFile(uintptr(fd), "eventfd")
	if err := m.await(m.wakeup, socket); err != nil {
		return err
	}
	if err := m.inbox.open(); err != nil {
		return err
	}
	if err := m.await(m.inbox.events, besides); err != nil {
		return err
	}
	l, err := hold(m.name(m.number, "inbox"))
	if err != nil {
		return err
	}
	_, err = m.inbox.listen(l)
	return err
}

// startSharing prepares the use of m.sockets. The caller holds m.mu, or no
// other goroutine uses m yet.
func (m *member) startSharing() error {
	f, err := duplicate(m.sockets[madsIndex])
	if err != nil {
		return err
	}
	if err := m.await(f, besides); err != nil {
		f.Close()
		return err
	}
	if m.mads, err = udp.Open(f, m.local, m.opts, idle{}); err != nil {
		return err
	}
	m.shared.Store(true)
	return nil
}

// group returns the sockets of all numbers, and opens them for the first process that asks.
func (m *member) group() (_ []*os.File, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sockets != nil {
		return m.sockets, nil
	}
	var list []*os.File
	defer func() {
		if err != nil {
			closeAll(list)
			m.sockets = nil
		}
	}()
	first, err := duplicate(m.own)
	if err != nil {
		return nil, err
	}
	list = append(list, first)
	// Further sockets can be bound from now on.
	if err := unix.SetsockoptInt(int(first.Fd()), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, err
	}
	for len(list) < sockets {
		f, err := udp.Bind(m.local, m.opts, true)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
		if len(list) == madsIndex+1 {
			err = steer(first)
		} else {
			err = plug(f)
		}
		if err != nil {
			return nil, err
		}
	}
	m.sockets = list
	return list, m.startSharing()
}

// Unwrap implements packetconn.Wrapper.
func (c *Conn) Unwrap() packetconn.Conn { return c.Conn }

// SyscallConn implements syscall.Conn: the descriptor is readable when Poll has something.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.m.events.SyscallConn() }

// Member implements netconn.Member.
func (c *Conn) Member() uint32 { return uint32(c.m.number) }

// Shared implements netconn.Member.
func (c *Conn) Shared() bool { return c.m.shared.Load() }

// Close implements packetconn.Conn.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.close.Do(c.m.release)
	return err
}

// release closes everything that m has opened.
func (m *member) release() {
	m.door.close()
	if m.near != nil {
		m.near.close()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared.Load() && m.own != nil {
		_ = plug(m.own) // other processes keep the socket open; without the plug its buffer would fill up
	}
	if m.mads != nil {
		m.mads.Close()
	}
	closeAll(m.sockets)
	m.sockets = nil
	m.claiming.Lock()
	defer m.claiming.Unlock()
	m.claims = nil
	m.inbox.close()
	m.outbox.close()
	closeAll([]*os.File{m.own, m.events, m.wakeup})
	m.lock.release() // last: another process may take the number now
}

// Claim implements netconn.Member.
func (c *Conn) Claim(serviceID uint64) (release func(), err error) {
	m := c.m
	m.claiming.Lock()
	defer m.claiming.Unlock()
	if m.claims == nil {
		return nil, os.ErrClosed
	}
	had := m.claims[serviceID]
	if had == nil {
		l, err := hold(m.service(serviceID))
		if err == errHeld {
			return nil, failure.New("cm listen", syscall.EADDRINUSE, "service id %#x: another process at %v listens already", serviceID, m.local.Addr())
		} else if err != nil {
			return nil, err
		}
		fd, err := m.inbox.listen(l)
		if err != nil {
			return nil, err
		}
		had = &claim{name: fd}
		m.claims[serviceID] = had
	}
	had.users++
	return sync.OnceFunc(func() {
		m.claiming.Lock()
		defer m.claiming.Unlock()
		if had.users--; had.users == 0 && m.claims[serviceID] == had {
			m.inbox.end(had.name)
			delete(m.claims, serviceID)
		}
	}), nil
}

// claimed reports whether this process has claimed a service id.
func (m *member) claimed(serviceID uint64) bool {
	m.claiming.Lock()
	defer m.claiming.Unlock()
	return m.claims[serviceID] != nil
}

// prefix returns the beginning of the names at an address.
func prefix(local netip.AddrPort) string {
	return fmt.Sprintf("@softmkey/%d/%v", os.Geteuid(), local)
}

// name returns the name of a socket of the process with a number.
func (m *member) name(number int, what string) string {
	return fmt.Sprintf("%s/%d/%s", m.prefix, number, what)
}

// service returns the name that stands for a claimed service id.
func (m *member) service(id uint64) string { return fmt.Sprintf("%s/service/%x", m.prefix, id) }
