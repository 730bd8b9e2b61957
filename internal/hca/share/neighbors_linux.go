package share

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/packetconn"
)

const (
	// mostNeighbors limits the rings of each direction. Packets of further
	// processes go through the sockets.
	mostNeighbors = 64
	// neighborPatience limits the time for which a process waits until another one on the
	// machine has mapped a ring.
	neighborPatience = 200 * time.Millisecond
	// approachEvery is the time between two attempts to reach the same process by a ring.
	approachEvery = time.Second
	// mostRefused limits the number of unreachable processes that are remembered.
	mostRefused = 1024
	// ringTurns is the number of calls of Poll in a row that receive from the rings and
	// ignore the sockets.
	ringTurns = 7
	// lookEvery is the number of calls of Poll without Sleep after which it looks for processes
	// that have ended.
	lookEvery = 1 << 12
	// roomPatience is the time for which packets that nobody repeats wait for a process that takes nothing. Shorter:
	// a process that gets no processor on a busy machine loses packets. Longer: one that was stopped holds up the
	// sender's queue for longer. Not measured.
	roomPatience = 400 * time.Millisecond
	// stopPatience is the time for which requests wait for a process that takes nothing, without using up their retries.
	// Shorter: on a very busy machine connections break that an adapter would keep. Longer: a program learns later that
	// the process of its peer was stopped. Not measured.
	stopPatience = 10 * time.Second
	// remindEvery is how often another process is told that a stream of packets goes on.
	remindEvery = 5 * time.Millisecond
)

// hello begins the message with which a producer hands over the memory of a ring. The producer's
// address follows.
const hello = "softmkey ring 1 "

// place is a process at an address.
type place struct {
	addr   netip.AddrPort
	number int
}

// neighbors are the rings between this process and others on the machine.
type neighbors struct {
	m        *member
	page     *assist.Page // of the helpers of this process's device; nil: it has none, and Send wakes those of others
	due      atomic.Bool  // a ring has packets of which the consumer's helpers were not told
	blocks   bool         // this process has no thread that polls: it blocks in Recv until packets arrive
	blocking atomic.Bool  // packets were passed to a process that blocks: see Blocking
	l        *net.UnixListener
	serving  sync.WaitGroup

	tx       sync.Mutex // guards the following fields
	closed   bool
	out      map[place]*outgoing
	meetings map[place]chan struct{} // closed at the end of an attempt that is under way
	refused  map[place]refusal

	rx    sync.Mutex // guards the following fields
	in    []*incoming
	first int  // index of the ring that poll begins with
	slept bool // sleep was called since the last poll
	polls int  // calls of poll since processes that have ended were looked for
}

// refusal says that a process is not approached for packets until a time.
type refusal struct {
	until  time.Time
	silent bool // it did not answer: it is not approached for a queue pair either
}

// outgoing is a ring to another process.
type outgoing struct {
	ring   *ring
	fd     int          // a socket that wakes the other process; its peer closes when that process ends
	page   *assist.Page // of the other process's helpers; nil: it has none
	blocks bool         // the other process blocks in Recv until packets arrive
	due    bool         // see neighbors.due

	taken uint64    // what the other process had consumed at the last call of stalled
	since time.Time // when stalled found that first; zero: the ring was empty

	told   time.Time // when the other process was told of a stream
	kicks  int       // calls of Kick that use page at the moment
	closed bool      // page is to be closed at the end of the last of them
}

// incoming is a ring from another process.
type incoming struct {
	ring  *ring
	fd    int // a socket that wakes this process; its peer closes when the other process ends
	addr  netip.AddrPort
	ended bool   // the other process has ended
	last  uint64 // position of the producer when ended was set
	done  bool   // the ring is empty and stays empty, or it is broken
}

// Meet lets packets to and from other processes of the user on this machine pass through memory
// that both processes map, if the other process has called Meet, too. Meet must be called before
// the Conn is used. page is that of the helpers of the process's device, nil if it has none: the caller then does
// not call Kick, and Send does what Kick would do. blocks is whether the process, like that of softmkey target, has no
// thread that polls, and blocks in Recv until packets arrive. The other processes are told.
func (c *Conn) Meet(page *assist.Page, blocks bool) error {
	n := &neighbors{m: c.m, page: page, blocks: blocks, out: make(map[place]*outgoing), meetings: make(map[place]chan struct{}), refused: make(map[place]refusal)}
	var err error
	if n.l, err = hold(c.m.name(c.m.number, "ring")); err != nil {
		return err
	}
	c.m.near = n
	n.serving.Go(func() { accept(n.l, &n.serving, n.welcome) })
	return nil
}

// Near returns a Conn of Listen that has called Meet: the network of softmkey run and softmkey target.
func Near(local netip.AddrPort, alone bool, page *assist.Page, blocks bool) (*Conn, error) {
	c, err := Listen(local, nil, alone)
	if err != nil {
		return nil, err
	}
	if err := c.Meet(page, blocks); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// welcome accepts a ring from another process. If anything is wrong with the ring, welcome drops
// it, and the process keeps using the network.
func (n *neighbors) welcome(c *net.UnixConn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(neighborPatience))
	if !sameUser(c) {
		return
	}
	b, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	got, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return
	}
	memory := rights(oob[:oobn])
	defer memory.Close()
	text, ok := strings.CutPrefix(string(b[:got]), hello)
	addr, err := netip.ParseAddrPort(text)
	if local := n.m.local.Addr(); !ok || err != nil || addr.Addr().Is4() != local.Is4() || addr.Addr().Is4In6() || memory == nil {
		return
	}
	r, err := openRing(int(memory.Fd()))
	if err != nil {
		return
	}
	fd, err := descriptor(c)
	if err != nil {
		r.close()
		return
	}
	in := &incoming{ring: r, fd: fd, addr: addr}
	if !n.add(in) {
		in.close()
		return
	}
	var page []byte
	if n.page != nil {
		page = unix.UnixRights(int(n.page.File().Fd()))
	}
	answer := []byte{0}
	if n.blocks {
		answer[0] = 1
	}
	c.WriteMsgUnix(answer, page, nil)
}

// rights returns the one descriptor that came with a message. If several came, it closes them and
// returns nil.
func rights(oob []byte) *os.File {
	fds, _ := unixsocket.Descriptors(oob)
	files := asFiles(fds, "ring")
	if len(files) != 1 {
		closeAll(files)
		return nil
	}
	return files[0]
}

// descriptor returns a descriptor of c's socket, which does not close with c.
func descriptor(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	return unixsocket.Duplicate(raw)
}

// add makes poll receive from a ring. It returns false if there are too many rings.
func (n *neighbors) add(in *incoming) bool {
	n.rx.Lock()
	defer n.rx.Unlock()
	n.tx.Lock()
	closed := n.closed
	n.tx.Unlock()
	if closed || len(n.in) >= mostNeighbors {
		return false
	}
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: rung}
	if unix.EpollCtl(int(n.m.events.Fd()), unix.EPOLL_CTL_ADD, in.fd, &e) != nil {
		return false
	}
	n.in = append(n.in, in)
	if n.slept {
		// A thread sleeps already, so the producer has to be told to wake it.
		in.ring.sleep()
	}
	return true
}

func (in *incoming) close() {
	unix.Close(in.fd)
	in.ring.close()
}

// sleep prepares a wait on the descriptor of Conn.SyscallConn, and reports whether a ring has
// packets already.
func (n *neighbors) sleep() (arrived bool) {
	n.rx.Lock()
	defer n.rx.Unlock()
	n.slept = true
	for _, in := range n.in {
		arrived = in.ring.sleep() || arrived
	}
	return arrived
}

// wakeUp ends the wait that sleep has prepared.
func (n *neighbors) wakeUp() {
	n.slept = false
	for _, in := range n.in {
		in.ring.awake()
	}
	n.look()
}

// look takes the wake-ups of rings, and detects processes that have ended.
func (n *neighbors) look() {
	n.polls = 0
	var events [4]unix.EpollEvent
	count, err := unix.EpollWait(int(n.m.events.Fd()), events[:], 0)
	if err != nil {
		return
	}
	for _, e := range events[:count] {
		switch e.Fd {
		case besides:
			n.m.arrived = true
		case rung:
			for _, in := range n.in {
				if ended(in.fd) && !in.ended {
					in.ended, in.last = true, in.ring.produced.Load()
				}
			}
		case hungUp:
			n.tx.Lock()
			for p, o := range n.out {
				if ended(o.fd) {
					n.drop(p, o)
				}
			}
			n.tx.Unlock()
		}
	}
}

// ended reads a wake-up from a socket, and reports whether the process at the other end has ended.
func ended(fd int) bool {
	var b [1]byte
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_DONTWAIT, 0, 0)
	return got == 0 || errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR
}

// PollMemory implements netconn.Neighbor.
func (c *Conn) PollMemory(trains []packetconn.Train) int {
	if c.m.near == nil {
		return 0
	}
	return c.m.near.poll(trains)
}

// poll fills trains from the rings and returns their number.
func (n *neighbors) poll(trains []packetconn.Train) (count int) {
	n.rx.Lock()
	defer n.rx.Unlock()
	if n.polls++; n.slept {
		n.wakeUp()
	} else if n.polls >= lookEvery {
		n.look()
	}
	if len(n.in) == 0 {
		return 0
	}
	if n.first++; n.first >= len(n.in) {
		n.first = 0
	}
	gone := false
	for i := range n.in {
		in := n.in[(n.first+i)%len(n.in)]
		for count < len(trains) {
			got, err := in.ring.pop(&trains[count])
			if !got {
				in.done = in.ended || err != nil
				break
			}
			trains[count].Addr = in.addr
			count++
			if in.ended && int64(in.ring.at-in.last) >= 0 {
				in.done = true
				break
			}
		}
		gone = gone || in.done
	}
	if gone {
		n.in = slices.DeleteFunc(n.in, func(in *incoming) bool {
			if in.done {
				in.close()
			}
			return in.done
		})
	}
	return count
}

// place returns the process that owns a QP at an address. ok is false if packets to the QP do not
// go through a ring: QP 1, and the QPs of this process.
func (n *neighbors) place(to netip.AddrPort, qpn uint32) (p place, ok bool) {
	p = place{to, int(qpn >> memberShift)}
	return p, qpn != gsiQPN && (p.number != n.m.number || p.addr != n.m.local)
}

// qpnOf returns the QP that the first packet of a train is for.
func qpnOf(t *packetconn.Train) uint32 { return binary.BigEndian.Uint32(t.Buf[4:]) & 0xffffff }

// ring returns the ring for a train, or nil. It is called with tx held.
func (n *neighbors) ring(t *packetconn.Train) *outgoing {
	if len(t.Buf) < 8 || len(t.Buf) > packetconn.RecvSize {
		return nil
	}
	p, ok := n.place(t.Addr, qpnOf(t))
	if !ok {
		return nil
	}
	if o := n.out[p]; o != nil {
		return o
	}
	if time.Now().Before(n.refused[p].until) || n.closed || len(n.out)+len(n.meetings) >= mostNeighbors {
		return nil
	}
	n.refuse(p, false) // meet ends this if it succeeds
	n.serving.Go(func() { n.meet(p) })
	return nil
}

// refuse notes that a process cannot be reached by a ring now. It is called with tx held.
func (n *neighbors) refuse(p place, silent bool) {
	if len(n.refused) >= mostRefused {
		clear(n.refused)
	}
	n.refused[p] = refusal{time.Now().Add(approachEvery), silent}
}

// Send implements packetconn.Conn.
func (c *Conn) Send(trains []packetconn.Train) (sent int, err error) {
	n := c.m.near
	if n == nil {
		return c.Conn.Send(trains)
	}
	for sent < len(trains) && err == nil {
		pushed, others := n.push(trains[sent:])
		sent += pushed
		if n.page == nil {
			n.kick(assist.Processor())
		}
		if others > 0 {
			var k int
			k, err = c.Conn.Send(trains[sent : sent+others])
			sent += k
		}
	}
	return sent, err
}

// push moves trains to their rings up to the first one without a ring. It returns the number of
// trains that it has moved, and how many trains after them have no ring.
func (n *neighbors) push(trains []packetconn.Train) (pushed, others int) {
	n.tx.Lock()
	defer n.tx.Unlock()
	var woken *outgoing
	for i := range trains {
		t := &trains[i]
		o := n.ring(t)
		if o == nil {
			others++
			continue
		}
		if others > 0 {
			break
		}
		if woken != o {
			woken.wake()
			woken = o
		}
		// A train is lost if the ring is full, as it is if a socket's buffer is. See Room.
		switch o.ring.push(t) {
		case errRingBroken:
			n.drop(place{t.Addr, int(qpnOf(t) >> memberShift)}, o)
			woken = nil
		case nil:
			if o.page != nil && !o.due {
				o.due = true
				n.due.Store(true)
			}
			if o.blocks && !n.blocking.Load() {
				n.blocking.Store(true)
			}
		}
		pushed++
	}
	woken.wake()
	return pushed, others
}

// wake wakes the consumer if it sleeps.
func (o *outgoing) wake() {
	if o == nil || !o.ring.wakes() {
		return
	}
	// A raw call does not notify the scheduler, and this one does not block. If the buffer is
	// full, the consumer has not seen earlier wake-ups yet.
	var b [1]byte
	unix.RawSyscall6(unix.SYS_SENDTO, uintptr(o.fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
}

// Approach implements netconn.Neighbor.
func (c *Conn) Approach(to netip.AddrPort, qpn uint32) bool {
	n := c.m.near
	if n == nil {
		return false
	}
	p, ok := n.place(to, qpn)
	if !ok {
		return false
	}
	n.meet(p)
	n.tx.Lock()
	defer n.tx.Unlock()
	return n.out[p] != nil
}

// Room implements netconn.Neighbor.
func (c *Conn) Room(to netip.AddrPort, qpn uint32) bool {
	room := true
	c.m.near.with(to, qpn, func(o *outgoing) {
		room = ringData-(o.ring.at-o.ring.consumed.Load()) >= ringRoom || o.stalled() > roomPatience
	})
	return room
}

// Behind implements netconn.Neighbor.
func (c *Conn) Behind(to netip.AddrPort, qpn uint32) (behind bool) {
	c.m.near.with(to, qpn, func(o *outgoing) {
		stalled := o.stalled()
		behind = stalled > 0 && stalled < stopPatience
	})
	return behind
}

// with calls f, with tx held, for the ring to a QP at an address, if there is one. n may be nil.
func (n *neighbors) with(to netip.AddrPort, qpn uint32, f func(*outgoing)) {
	if n == nil {
		return
	}
	p, ok := n.place(to, qpn)
	if !ok {
		return
	}
	n.tx.Lock()
	defer n.tx.Unlock()
	if o := n.out[p]; o != nil {
		f(o)
	}
}

// stalled returns for how long the other process has taken nothing of what is in the ring. Its first call that finds
// packets returns 0, and so does one after the process has taken some.
func (o *outgoing) stalled() time.Duration {
	taken := o.ring.consumed.Load()
	if taken == o.ring.at {
		o.since = time.Time{}
		return 0
	}
	if taken != o.taken || o.since.IsZero() {
		o.taken, o.since = taken, time.Now()
		return 0
	}
	return time.Since(o.since)
}

// Kick implements netconn.Neighbor.
func (c *Conn) Kick(cpu int) (told bool) { return c.m.near != nil && c.m.near.kick(cpu) }

// Blocking implements netconn.Neighbor.
func (c *Conn) Blocking() bool {
	n := c.m.near
	return n != nil && n.blocking.Load() && n.blocking.Swap(false)
}

// kick wakes the helpers, on a processor, of the processes whose rings have got packets. It holds no lock
// meanwhile, because a helper that runs on the caller's processor takes it from the caller.
func (n *neighbors) kick(cpu int) (told bool) {
	if !n.due.Load() || !n.due.Swap(false) {
		return false
	}
	var some [4]*outgoing
	var streams [len(some)]bool
	stream := n.page != nil && n.page.Polling() == assist.Stream
	for more := true; more; {
		more = false
		count := 0
		n.tx.Lock()
		for _, o := range n.out {
			if !o.due {
				continue
			}
			if count == len(some) {
				more = true
				break
			}
			o.due = false
			o.kicks++
			some[count], streams[count] = o, false
			if stream && time.Since(o.told) >= remindEvery {
				streams[count], o.told = true, time.Now()
			}
			count++
		}
		n.tx.Unlock()
		for i, o := range some[:count] {
			told = true
			if streams[i] {
				o.page.TellStream()
			}
			o.page.Kick(cpu)
		}
		n.tx.Lock()
		for _, o := range some[:count] {
			o.kicks--
			o.closePage()
		}
		n.tx.Unlock()
	}
	return told
}

// closePage closes the page if the ring is closed and nobody uses the page. It is called with tx held.
func (o *outgoing) closePage() {
	if o.closed && o.kicks == 0 && o.page != nil {
		o.page.Close()
		o.page = nil
	}
}

// Sleep implements netconn.Neighbor.
func (c *Conn) Sleep() (arrived bool) { return c.m.near != nil && c.m.near.sleep() }

// meet hands a ring to the process at p, unless it has one or does not answer. It waits for an
// attempt of another goroutine.
func (n *neighbors) meet(p place) {
	n.tx.Lock()
	for under := n.meetings[p]; under != nil; under = n.meetings[p] {
		n.tx.Unlock()
		<-under
		n.tx.Lock()
	}
	if o := n.out[p]; o != nil && ended(o.fd) { // another process may have the place now
		n.drop(p, o)
	}
	was := n.refused[p]
	if n.out[p] != nil || was.silent && time.Now().Before(was.until) || len(n.out)+len(n.meetings) >= mostNeighbors || n.closed {
		n.tx.Unlock()
		return
	}
	end := make(chan struct{})
	n.meetings[p] = end
	n.tx.Unlock()
	o, err := n.bring(p)
	n.tx.Lock()
	defer n.tx.Unlock()
	delete(n.meetings, p)
	close(end)
	switch {
	case err != nil:
		n.refuse(p, errors.Is(err, os.ErrDeadlineExceeded))
		return
	case n.closed:
		o.close()
		return
	}
	e := unix.EpollEvent{Fd: hungUp}
	if unix.EpollCtl(int(n.m.events.Fd()), unix.EPOLL_CTL_ADD, o.fd, &e) != nil {
		o.close()
		n.refuse(p, false)
		return
	}
	n.out[p] = o
	delete(n.refused, p)
}

// drop ends the use of a ring to the process at p. It is called with tx held.
func (n *neighbors) drop(p place, o *outgoing) {
	delete(n.out, p)
	n.refuse(p, false) // packets do not bring the ring back at once; Approach does
	o.close()
}

// close ends the ring. It is called with tx held, or by the only one who has o.
func (o *outgoing) close() {
	unix.Close(o.fd)
	o.ring.close()
	o.closed = true
	o.closePage()
}

// bring makes a ring and hands it to the process at p.
func (n *neighbors) bring(p place) (*outgoing, error) {
	m := member{prefix: prefix(p.addr)}
	c, err := find(m.name(p.number, "ring"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	memory, err := newMemory()
	if err != nil {
		return nil, err
	}
	defer unix.Close(memory)
	r, err := openRing(memory)
	if err != nil {
		return nil, err
	}
	o, err := n.offer(c, memory)
	if err != nil {
		r.close()
		return nil, err
	}
	o.ring = r
	return o, nil
}

// offer sends the memory of a ring to the process at the other end of c, and waits until that process has mapped it. The
// result describes the connection to that process; its field ring is not set.
func (n *neighbors) offer(c *net.UnixConn, memory int) (*outgoing, error) {
	c.SetDeadline(time.Now().Add(neighborPatience))
	if _, _, err := c.WriteMsgUnix([]byte(hello+n.m.local.String()), unix.UnixRights(memory), nil); err != nil {
		return nil, err
	}
	o := new(outgoing)
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	got, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if f := rights(oob[:oobn]); f != nil {
		o.page, _ = assist.Open(f) // without its page, the other process looks by itself
		f.Close()
	}
	if err == nil && got == 0 {
		err = syscall.ECONNRESET
	}
	if err == nil {
		o.fd, err = descriptor(c)
	}
	if err != nil {
		o.page.Close()
		return nil, err
	}
	o.blocks = b[0] == 1
	return o, nil
}

// close ends all rings.
func (n *neighbors) close() {
	n.l.Close()
	n.tx.Lock()
	n.closed = true
	for p, o := range n.out {
		n.drop(p, o)
	}
	n.tx.Unlock()
	n.serving.Wait()
	n.rx.Lock()
	defer n.rx.Unlock()
	for _, in := range n.in {
		in.close()
	}
	n.in = nil
}
