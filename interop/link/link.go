package link

import (
	"container/heap"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/roce/rocetest"
)

// Link connects two hosts with two paths, one for each direction.
type Link struct {
	A, B *Host

	ends [2]*end // from A to B, from B to A
	stop int     // an eventfd, which ends the goroutines of both directions
	wg   sync.WaitGroup
}

// New creates two hosts and a link between them, with equal paths in both directions.
// Host A has the addresses 10.92.0.1 and 10.92.0.3, host B 10.92.0.2 and 10.92.0.4. New
// needs root. The link carries packets until Close.
func New(mtu int, l rocetest.Link, seed uint64) (*Link, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("link: eventfd: %w", err)
	}
	a, err := newHost(mtu, "10.92.0.1", "10.92.0.3")
	if err != nil {
		return nil, errors.Join(err, unix.Close(stop))
	}
	b, err := newHost(mtu, "10.92.0.2", "10.92.0.4")
	if err != nil {
		return nil, errors.Join(err, a.close(), unix.Close(stop))
	}
	k := &Link{A: a, B: b, stop: stop}
	start := time.Now()
	for i, hosts := range [2][2]*Host{{a, b}, {b, a}} {
		e := &end{from: hosts[0].tun, to: hosts[1].tun, stop: stop, path: rocetest.NewPath(l, seed+uint64(i)), start: start}
		k.ends[i] = e
		k.wg.Go(e.forward)
	}
	return k, nil
}

// Counters returns the counters of the path from A to B and of the path from B to A.
func (k *Link) Counters() (ab, ba rocetest.PathCounters) {
	return k.ends[0].counters(), k.ends[1].counters()
}

// Close removes the link and both hosts. Programs on them must have ended.
func (k *Link) Close() error {
	_, err := unix.Write(k.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	k.wg.Wait()
	return errors.Join(err, k.A.close(), k.B.close(), unix.Close(k.stop))
}

// end is one direction of a link. Its goroutine reads packets, lets the path compute their
// arrival, and writes them at that time.
type end struct {
	from, to, stop int // file descriptors
	start          time.Time

	mu   sync.Mutex // guards path
	path *rocetest.Path

	arrivals []rocetest.Arrival // of one packet
	queue    packets
	seq      uint64
	spare    [][]byte // buffers of packets that were delivered
}

// maxPacket is the largest packet of a TUN device.
const maxPacket = 1 << 16

// burst is the largest number of packets that are read, or written, between two looks at the clock.
const burst = 16

// forward has a thread of its own, which waits in the kernel for packets and for the time of the next
// arrival. Go's timers are no use here: when a process has nothing else to do, its runtime waits for
// whole milliseconds.
func (e *end) forward() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// By default the kernel delays the ends of waits by up to 50 µs. If it refuses, the delay stays.
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	in := make([]byte, maxPacket)
	for {
		e.deliver()
		came, stopped := e.wait()
		if stopped {
			return
		}
		for n := 0; came && n < burst; n++ {
			size, err := unix.Read(e.from, in)
			if err != nil {
				break // nothing to read
			}
			e.enter(in[:size])
		}
	}
}

// wait waits until a packet can be read, one is to be delivered, or the link is closed.
func (e *end) wait() (came, stopped bool) {
	fds := []unix.PollFd{{Fd: int32(e.from), Events: unix.POLLIN}, {Fd: int32(e.stop), Events: unix.POLLIN}}
	var until *unix.Timespec
	if len(e.queue) > 0 {
		t := unix.NsecToTimespec(int64(max(0, e.queue[0].at-time.Since(e.start))))
		until = &t
	}
	if _, err := unix.Ppoll(fds, until, nil); err != nil {
		return false, false // a signal
	}
	return fds[0].Revents != 0, fds[1].Revents != 0
}

// enter passes a packet into the path.
func (e *end) enter(b []byte) {
	e.mu.Lock()
	e.arrivals = e.path.Send(e.arrivals[:0], time.Since(e.start), len(b), capable(b))
	e.mu.Unlock()
	for _, a := range e.arrivals {
		var data []byte
		if last := len(e.spare) - 1; last >= 0 {
			data, e.spare = e.spare[last], e.spare[:last]
		}
		p := packet{at: a.At, seq: e.seq, data: append(data[:0], b...)}
		e.seq++
		if a.CE {
			mark(p.data)
		}
		heap.Push(&e.queue, p)
	}
}

// deliver writes packets that are due. If the kernel refuses one, it counts as lost.
func (e *end) deliver() {
	now := time.Since(e.start)
	for n := 0; n < burst && len(e.queue) > 0 && e.queue[0].at <= now; n++ {
		p := heap.Pop(&e.queue).(packet)
		unix.Write(e.to, p.data)
		e.spare = append(e.spare, p.data)
	}
}

func (e *end) counters() rocetest.PathCounters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.path.Counters()
}

// packet is an IP packet in flight.
type packet struct {
	at   time.Duration
	seq  uint64
	data []byte
}

// packets is a heap by time of arrival.
type packets []packet

func (q packets) Len() int { return len(q) }
func (q packets) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q packets) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *packets) Push(x any)   { *q = append(*q, x.(packet)) }
func (q *packets) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = packet{}
	*q = (*q)[:last]
	return p
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
