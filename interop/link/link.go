package link

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/roce/netem"
)

// Link connects two hosts with two paths, one for each direction.
type Link struct {
	A, B *Host

	ends [2]*end // from A to B, from B to A
	wg   sync.WaitGroup

	all *unix.CPUSet // this process's processors before Separate
}

// New creates two hosts and a link between them, with equal paths in both directions.
// Host A has the addresses 10.92.0.1 and 10.92.0.3, host B 10.92.0.2 and 10.92.0.4. New
// needs root. The link carries packets until Close.
func New(mtu int, l netem.Link, seed uint64) (*Link, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	a, err := newHost(mtu, "10.92.0.1", "10.92.0.3")
	if err != nil {
		return nil, err
	}
	b, err := newHost(mtu, "10.92.0.2", "10.92.0.4")
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	k := &Link{A: a, B: b}
	start := time.Now()
	for i, hosts := range [2][2]*Host{{a, b}, {b, a}} {
		e := &end{from: hosts[0].tun, to: hosts[1].tun, path: netem.NewPath(l, seed+uint64(i)), start: start, wake: make(chan struct{}, 1), carried: map[Flow]int64{}}
		if e.clock, err = newClock(); err != nil {
			return nil, errors.Join(err, k.Close())
		}
		k.ends[i] = e
		k.wg.Go(e.receive)
		k.wg.Go(e.deliver)
		k.wg.Go(e.tick)
	}
	return k, nil
}

// Counters returns the counters of the path from A to B and of the path from B to A.
func (k *Link) Counters() (ab, ba netem.PathCounters) {
	return k.ends[0].counters(), k.ends[1].counters()
}

// Carried returns the bytes that arrived at host B, for each flow.
func (k *Link) Carried() map[Flow]int64 {
	e := k.ends[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.carried)
}

// Flow identifies the packets that go to one port of one host: the destination's address, IPv4's number of the
// protocol (17 for UDP, 6 for TCP), and the destination's port.
type Flow struct {
	To       netip.Addr
	Protocol byte
	Port     uint16
}

// flowOf returns the flow of an IPv4 packet without options that is no later fragment, or else the zero Flow.
func flowOf(b []byte) Flow {
	if len(b) < 24 || b[0] != 0x45 || b[6]&0x1F|b[7] != 0 {
		return Flow{}
	}
	return Flow{netip.AddrFrom4([4]byte(b[16:])), b[9], uint16(b[22])<<8 | uint16(b[23])}
}

// Close removes the link and both hosts. Programs on them must have ended.
func (k *Link) Close() error {
	err := errors.Join(k.A.close(), k.B.close())
	for _, e := range k.ends {
		if e != nil {
			err = errors.Join(err, e.clock.Close())
		}
	}
	k.wg.Wait()
	if k.all != nil {
		err = errors.Join(err, bind(k.all))
	}
	return err
}

// end is one direction of a link. Its receive goroutine reads packets and lets the path
// compute their arrival; its deliver goroutine writes them at that time. Closing the
// devices and the clock ends all.
type end struct {
	from, to *os.File
	start    time.Time
	clock    *os.File      // a timerfd, set to the arrival of the first packet
	wake     chan struct{} // holds an element if the first packet to deliver may have changed, or is due

	mu       sync.Mutex // guards the following fields
	path     *netem.Path
	arrivals []netem.Arrival // of one packet
	queue    []packet        // by time of arrival
	spare    [][]byte        // buffers of packets that were delivered
	carried  map[Flow]int64  // bytes that were delivered
	closed   bool
}

// maxPacket is the largest packet of a TUN device.
const maxPacket = 1 << 16

// burst is the number of packets that are read, or written, at a time, if there are as many. To wake up
// the other goroutine for each packet would take longer than all the rest.
const burst = 16

func (e *end) receive() {
	var in [burst][]byte
	for i := range in {
		in[i] = make([]byte, maxPacket)
	}
	conn, err := e.from.SyscallConn()
	for err == nil {
		n := 0
		err = conn.Read(func(fd uintptr) bool {
			for ; n < burst; n++ {
				size, err := unix.Read(int(fd), in[n][:maxPacket])
				if err != nil {
					break // nothing to read, or the device is being closed
				}
				in[n] = in[n][:size]
			}
			return n > 0
		})
		first := false
		e.mu.Lock()
		for _, b := range in[:n] {
			first = e.enter(b) || first
		}
		e.mu.Unlock()
		if first {
			e.notify()
		}
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.notify()
}

// enter passes a packet into the path. It reports whether it is the first one to deliver. mu is locked.
func (e *end) enter(b []byte) (first bool) {
	e.arrivals = e.path.Send(e.arrivals[:0], time.Since(e.start), len(b), capable(b))
	for _, a := range e.arrivals {
		var data []byte
		if last := len(e.spare) - 1; last >= 0 {
			data, e.spare = e.spare[last], e.spare[:last]
		}
		p := packet{at: a.At, data: append(data[:0], b...)}
		if a.CE {
			mark(p.data)
		}
		at := sort.Search(len(e.queue), func(i int) bool { return e.queue[i].at > p.at })
		e.queue = slices.Insert(e.queue, at, p)
		first = first || at == 0
	}
	return first
}

func (e *end) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// newClock returns a timerfd. Go's timers are no use here: when a process has nothing else to do, its
// runtime waits for whole milliseconds.
func newClock() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("link: timerfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "timerfd"), nil
}

// tick wakes up the deliver goroutine when the clock reaches the arrival of the first packet.
func (e *end) tick() {
	var times [8]byte
	for {
		if _, err := e.clock.Read(times[:]); err != nil {
			return // the link is closed
		}
		e.notify()
	}
}

// alarm sets the clock.
func (e *end) alarm(wait time.Duration) {
	conn, err := e.clock.SyscallConn()
	if err == nil {
		conn.Control(func(fd uintptr) {
			unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}, nil)
		})
	}
}

func (e *end) deliver() {
	var due []packet
	for {
		e.mu.Lock()
		for _, p := range due {
			e.spare = append(e.spare, p.data)
		}
		now := time.Since(e.start)
		for due = due[:0]; len(due) < burst && len(e.queue) > 0 && e.queue[0].at <= now; {
			p := e.queue[0]
			e.queue[0] = packet{}
			e.queue = e.queue[1:]
			due = append(due, p)
			e.carried[flowOf(p.data)] += int64(len(p.data))
		}
		wait := time.Duration(0)
		if len(e.queue) > 0 {
			wait = e.queue[0].at - now
		}
		closed := e.closed
		e.mu.Unlock()
		for _, p := range due {
			if _, err := e.to.Write(p.data); errors.Is(err, os.ErrClosed) {
				return
			}
			// Any other error means that the kernel has refused the packet. It counts
			// as lost.
		}
		if closed {
			return
		}
		if len(due) > 0 {
			continue
		}
		if wait > 0 {
			e.alarm(wait)
		}
		<-e.wake
	}
}

func (e *end) counters() netem.PathCounters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path.Counters()
}

// packet is an IP packet in flight.
type packet struct {
	at   time.Duration
	data []byte
}

// capable reports whether an IPv4 packet belongs to an ECN-capable transport (RFC 3168,
// section 5).
func capable(b []byte) bool { return len(b) >= 20 && b[0]>>4 == 4 && b[1]&3 != 0 }

// mark sets CE in an IPv4 header and updates the checksum (RFC 1624, equation 3).
func mark(b []byte) {
	before := uint32(b[0])<<8 | uint32(b[1])
	b[1] |= 3
	after := uint32(b[0])<<8 | uint32(b[1])
	sum := ^(uint32(b[10])<<8|uint32(b[11]))&0xFFFF + ^before&0xFFFF + after
	sum = sum&0xFFFF + sum>>16
	sum = ^(sum&0xFFFF + sum>>16)
	b[10], b[11] = byte(sum>>8), byte(sum)
}
