//go:build linux

package share_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/share"
	"github.com/softmkey/softmkey/packetconn"
)

// TestRings runs the tests of shared addresses between processes with rings.
func TestRings(t *testing.T) {
	rings = true
	defer func() { rings = false }()
	t.Run("Share", TestShare)
	t.Run("Services", TestServices)
	t.Run("Killed", TestKilledProcesses)
	a, b := join(t, at(20)), join(t, at(21))
	run(t, []*flow{a.flowTo(b), b.flowTo(a), a.flowTo(a)}, 10)
	for _, p := range []*process{a, b} {
		if to, from := p.conn.Rings(); to != 1 || from != 1 {
			t.Errorf("%d rings to others and %d from others, want 1 and 1", to, from)
		}
	}
	// A process without rings, as with --wire, is reached by the network.
	rings = false
	c := join(t, at(22))
	run(t, []*flow{a.flowTo(c), c.flowTo(a)}, 3)
	if to, _ := a.conn.Rings(); to != 1 {
		t.Errorf("%d rings to others, want 1", to)
	}
	rings = true
	b.leave()
	again := join(t, at(21))
	run(t, []*flow{a.flowTo(again)}, 3)
	if to, _ := a.conn.Rings(); to != 1 {
		t.Errorf("%d rings after the other process was replaced, want 1", to)
	}
}

// floodWord is in each packet of flood, followed by a count.
const floodWord = 0x5eed5eed

// flood sends packets with growing numbers for ever.
func flood(c *share.Conn, to netip.AddrPort) {
	if err := c.Meet(nil, false); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c.Approach(to, 5)
	fmt.Println("go")
	b := make([]byte, 40000)
	for n := uint32(0); ; n++ {
		copy(b, datagram(5, 20, 0))
		size := 20 + int(n*7919%39000)
		binary.BigEndian.PutUint32(b[12:], floodWord)
		binary.BigEndian.PutUint32(b[16:], n)
		for i := 20; i < size; i += 977 {
			b[i] = byte(n)
		}
		c.Send([]packetconn.Train{{Addr: to, Buf: b[:size], Seg: 1024}})
	}
}

// TestKick passes packets between two processes' parts that have pages of helpers. Packets in a ring wake the
// consumer's helper of the processor that Kick names, once; from a producer without a page of its own, Send does
// it. A producer whose program has a stream of requests tells the consumer. Blocking reports a packet
// to a process that blocks in Recv, once. A ring that ends takes its page along.
func TestKick(t *testing.T) {
	const cpu = 7
	var pages [4]*assist.Page
	var conns [4]*share.Conn // number 2 blocks in Recv until packets arrive; number 3 has no helpers, and polls
	for i := range pages {
		var err error
		if pages[i], err = assist.New(); err != nil {
			t.Fatal(err)
		}
		defer pages[i].Close()
		if conns[i], err = share.Listen(at(byte(40+i)), nil, false); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		page := pages[i]
		if i >= 2 {
			page = nil
		}
		fatal.If(t, conns[i].Meet(page, i == 2))
	}
	// woken returns a channel that is closed when the helper of a line was woken.
	woken := func(l assist.Line) chan struct{} {
		l.Doze()
		ch := make(chan struct{})
		go func() {
			for !l.Wait(time.Minute) {
			}
			close(ch)
		}()
		return ch
	}
	send := func(from *share.Conn, after func()) func() {
		return func() {
			if _, err := from.Send([]packetconn.Train{{Addr: at(41), Buf: datagram(5, 20, 0), Seg: 20}}); err != nil {
				t.Fatal(err)
			}
			after()
		}
	}
	until := func(what string, ch chan struct{}, do func()) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			do() // the helper may not wait yet
			select {
			case <-ch:
				return
			case <-time.After(time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the helper was not woken", what)
			}
		}
	}
	for _, from := range []int{0, 2} {
		if !conns[from].Approach(at(41), 5) {
			t.Fatal("there is no ring")
		}
	}
	until("Kick", woken(pages[1].Line(cpu)), send(conns[0], func() { conns[0].Kick(cpu) }))
	lines := woken(pages[1].Line(cpu))
	for range 5 {
		conns[0].Kick(cpu) // no packet since the last one
	}
	select {
	case <-lines:
		t.Error("Kick without packets wakes the helper")
	case <-time.After(5 * time.Millisecond):
	}
	until("Kick", lines, send(conns[0], func() { conns[0].Kick(cpu) }))
	pages[0].Poll(assist.Stream)
	_, streams := pages[1].Streams()
	until("a stream", woken(streams), send(conns[0], func() { conns[0].Kick(cpu) }))

	var all []chan struct{}
	for cpu := range runtime.NumCPU() {
		all = append(all, woken(pages[1].Line(cpu)))
	}
	any := make(chan struct{})
	var once sync.Once
	for _, ch := range all {
		go func() { <-ch; once.Do(func() { close(any) }) }()
	}
	if conns[0].Blocking() {
		t.Error("a process with helpers counts as one that blocks")
	}
	until("Send without a page", any, send(conns[2], func() {}))
	for cpu, ch := range all { // the others
		until("the end", ch, func() { pages[1].Kick(cpu) })
	}

	for to, blocks := range map[byte]bool{42: true, 43: false} {
		if !conns[0].Approach(at(to), 5) {
			t.Fatal("there is no ring to a process without a page")
		}
		if _, err := conns[0].Send([]packetconn.Train{{Addr: at(to), Buf: datagram(5, 20, 0), Seg: 20}}); err != nil {
			t.Fatal(err)
		}
		if conns[0].Blocking() != blocks || conns[0].Blocking() {
			t.Errorf("Blocking after a packet to %v: want %t, and false when it is called again", at(to), blocks)
		}
	}

	conns[1].Close()
	for range 100 {
		send(conns[0], func() { conns[0].Kick(cpu) })()
	}
}

// TestRoom sends to a process that takes nothing. No packet is lost while there is room. There is room
// again when the process has taken some, and after a while although it has taken none.
func TestRoom(t *testing.T) {
	var ends [2]*share.Conn
	for i := range ends {
		var err error
		if ends[i], err = share.Near(at(byte(50+i)), false, nil, false); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
	}
	a, b, to := ends[0], ends[1], at(51)
	if !a.Room(to, 5) || !a.Approach(to, 5) {
		t.Fatal("no ring")
	}
	sent, got := 0, 0
	d, taken := datagram(5, 1<<15, 0), []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}}
	fill := func() {
		for a.Room(to, 5) {
			a.Send([]packetconn.Train{{Addr: to, Buf: d, Seg: len(d)}})
			sent++
		}
	}
	take := func(polls int) {
		for range polls {
			n, err := b.Poll(taken)
			fatal.If(t, err)
			got += n
		}
	}
	for i := range 50 {
		fill()
		if i == 0 && sent < 100 {
			t.Errorf("room for %d trains of 32 KiB, want more than 100 in a ring of 4 MiB", sent)
		}
		for at := got; !a.Room(to, 5); {
			if take(1); got > at+20 {
				t.Fatalf("no room after %d trains were taken", got-at)
			}
		}
		take(7 * i)
	}
	for idle := 0; idle < 16; idle++ {
		if at := got; got < sent {
			if take(1); got > at {
				idle = 0
			}
		}
	}
	if got != sent {
		t.Errorf("%d of %d trains arrived", got, sent)
	}
	if a.Behind(to, 5) {
		t.Error("a process that has taken everything is behind")
	}
	a.Send([]packetconn.Train{{Addr: to, Buf: d, Seg: len(d)}, {Addr: to, Buf: d, Seg: len(d)}})
	for i, want := range []bool{false, true, true} {
		if got := a.Behind(to, 5); got != want {
			t.Errorf("call %d for a process that takes nothing: behind %t", i, got)
		}
	}
	for at := got; got == at; {
		take(1)
	}
	if a.Behind(to, 5) {
		t.Error("a process that has taken a train is behind")
	}
	fill()
	for !a.Room(to, 5) {
		time.Sleep(time.Millisecond)
	}
}

// TestSilentNeighbor approaches a process that does not answer, twice. The second call does not wait
// for it.
func TestSilentNeighbor(t *testing.T) {
	c, err := share.Listen(at(28), nil, false)
	if err == nil {
		err = c.Meet(nil, false)
	}
	fatal.If(t, err)
	defer c.Close()
	silent, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("@softmkey/%d/%v/0/ring", os.Geteuid(), at(29)), Net: "unixpacket"})
	fatal.If(t, err)
	defer silent.Close()
	attempts := make(chan net.Conn, 8)
	go func() {
		defer close(attempts)
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			attempts <- c
		}
	}()
	for range 3 {
		if c.Approach(at(29), 5) {
			t.Fatal("a process that does not answer has a ring")
		}
	}
	silent.Close()
	n := 0
	for c := range attempts {
		c.Close()
		n++
	}
	if n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

// TestRingKilled kills a process while it sends, twice. What has arrived is whole and in order, and
// the ring is gone afterwards.
func TestRingKilled(t *testing.T) {
	c, err := share.Listen(at(23), nil, false)
	if err == nil {
		err = c.Meet(nil, false)
	}
	fatal.If(t, err)
	defer c.Close()
	trains := []packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}, {Buf: make([]byte, packetconn.RecvSize)}}
	for _, sleeps := range []bool{true, false} {
		cmd, out := child(t, at(24), "SHARE_TEST_FLOOD="+at(23).String())
		if text, _ := bufio.NewReader(out).ReadString('\n'); text != "go\n" {
			t.Fatal(text)
		}
		next, got := uint32(0), 0
		for start := time.Now(); ; {
			n, err := c.Poll(trains)
			fatal.If(t, err)
			for i := range trains[:n] {
				b := trains[i].Buf
				number := binary.BigEndian.Uint32(b[16:])
				if binary.BigEndian.Uint32(b[12:]) != floodWord || number < next || len(b) != 20+int(number*7919%39000) || trains[i].Addr != at(24) {
					t.Fatalf("packet %#x of %d bytes from %v after packet %#x", number, len(b), trains[i].Addr, next)
				}
				for k := 20; k < len(b); k += 977 {
					if b[k] != byte(number) {
						t.Fatalf("packet %#x: byte %d is %#x", number, k, b[k])
					}
				}
				next = number + 1
			}
			if got += n; got > 2000 && cmd.ProcessState == nil {
				cmd.Process.Kill()
				cmd.Wait()
			}
			if n == 0 {
				if sleeps {
					c.Sleep() // the next Poll looks whether the process has ended; without Sleep one of the later calls does
				}
				if _, from := c.Rings(); from == 0 && cmd.ProcessState != nil {
					break
				}
			}
			if time.Since(start) > patience {
				t.Fatalf("%d packets arrived", got)
			}
		}
	}
}

// TestRingRefused offers memory of the wrong kind or size as a ring, and malformed messages. The
// process must refuse all of them.
func TestRingRefused(t *testing.T) {
	addr := at(25)
	rings = true
	a := join(t, addr)
	rings = false
	b := join(t, at(26))
	memory := func(size int64, flags, seals int) *os.File {
		fd, err := unix.MemfdCreate("ring", flags)
		if err == nil {
			err = unix.Ftruncate(fd, size)
		}
		if err == nil && seals != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		}
		fatal.If(t, err)
		return os.NewFile(uintptr(fd), "ring")
	}
	const size = 4096 + 4<<20
	null, err := os.Open("/dev/null")
	fatal.If(t, err)
	hello := "softmkey ring 1 " + at(27).String()
	offers := []struct {
		f    *os.File
		text string
	}{
		{nil, hello},
		{null, hello},
		{memory(size, unix.MFD_ALLOW_SEALING, 0), hello},
		{memory(4096, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), hello},
		{memory(size, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), "softmkey ring 2 " + at(27).String()},
		{memory(size, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), "softmkey ring 1 [::1]:4791"},
		{memory(size, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), "softmkey ring 1 nowhere"},
	}
	before := descriptors(t)
	for i, v := range offers {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("@softmkey/%d/%v/0/ring", os.Geteuid(), addr), Net: "unixpacket"})
		fatal.If(t, err)
		var rights []byte
		if v.f != nil {
			rights = unix.UnixRights(int(v.f.Fd()))
			if i == 1 {
				rights = unix.UnixRights(int(v.f.Fd()), int(v.f.Fd())) // two at a time
			}
			defer v.f.Close()
		}
		if _, _, err := c.WriteMsgUnix([]byte(v.text), rights, nil); err != nil {
			t.Fatal(err)
		}
		if n, _ := c.Read(make([]byte, 1)); n != 0 {
			t.Errorf("offer %d was taken", i)
		}
		c.Close()
	}
	if _, from := a.conn.Rings(); from != 0 {
		t.Errorf("%d rings from others", from)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
	run(t, []*flow{a.flowTo(b), b.flowTo(a)}, 2)
}

// descriptors returns the number of open descriptors that are memfds or /dev/null, as those in
// the offers.
func descriptors(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	fatal.If(t, err)
	for _, e := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "/memfd:") || to == os.DevNull {
			n++
		}
	}
	return n
}
