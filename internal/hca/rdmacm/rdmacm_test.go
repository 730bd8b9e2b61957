package rdmacm

import (
	"bytes"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/device/cmcore"
)

// listening creates a listening id of p.
func listening(p *program, fd int, uid uint64, space uint16, addr string) uint32 {
	p.t.Helper()
	id := p.createID(fd, uid, space)
	p.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr(addr), id))
	p.must(fd, cmdListen, 0, words(id, uint32(5)))
	return id
}

// resolved creates an id of p with address and route.
func resolved(p *program, fd int, uid uint64, space uint16, addr string) uint32 {
	p.t.Helper()
	id := p.createID(fd, uid, space)
	p.must(fd, cmdResolveIP, 0, words(sockaddr(""), sockaddr(addr), id, uint32(2000)))
	if e := p.expect(fd, eventAddrResolved); e.uid != uid || e.id != id {
		p.t.Errorf("event %+v", e)
	}
	p.must(fd, cmdResolveRoute, 0, words(id, uint32(2000)))
	p.expect(fd, eventRouteResolved)
	return id
}

func (p *program) qpAttr(fd int, id, state uint32) []byte {
	p.t.Helper()
	return p.must(fd, cmdInitQPAttr, qpAttrLen, words(uint64(memStart), id, state))
}

// TestConnection executes the rdma_cm commands of both sides of rping.
func TestConnection(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *network, a, b *program) {
			all, to, from := "0.0.0.0:7174", "192.0.2.2:7174", addrA
			if v6 {
				all, to, from = "[::]:7174", "[2001:db8::2]:7174", netip.MustParseAddr("2001:db8::1")
			}
			cb, ca := b.channel(), a.channel()
			listen := listening(b, cb, 0xb0, 0x0106, all)
			route := b.must(cb, cmdQueryRoute, routeLen, words(uint64(memStart), listen, uint32(0)))
			if ne.Uint64(route) != 0 || ne.Uint32(route[192:]) != 0 {
				t.Errorf("route of an id without device: %x", route)
			}

			client := resolved(a, ca, 0xa0, 0x0106, to)
			route = a.must(ca, cmdQueryRoute, routeLen, words(uint64(memStart), client, uint32(0)))
			src, _ := parseSockaddr(route[136:])
			dst, _ := parseSockaddr(route[164:])
			if !bytes.Equal(route[:8], []byte{0, 0, 0, 0, 0, 0, 0, 0xa}) || ne.Uint32(route[192:]) != 1 || route[196] != 1 || ne.Uint32(route[200:]) != invalidIBIndex ||
				src.Addr() != from || src.Port() == 0 || dst.String() != to || ne.Uint32(route[8+48:]) != 3 {
				t.Errorf("route %x", route)
			}
			attr := a.qpAttr(ca, client, 1)
			if ne.Uint32(attr) != maskState|maskAccess|maskPKeyIndex|maskPort || attr[qpAttrTail+9] != 1 || ne.Uint32(attr[4:]) != 1 {
				t.Errorf("attributes for INIT %x", attr)
			}

			a.must(ca, cmdConnect, 0, words(param(0x111, "hello", true), client, uint32(0), uint32(0x15b3), uint32(7)))
			e := b.expect(cb, eventConnectRequest)
			if e.uid != 0xb0 || e.id == listen || e.param[264] != 56 || !bytes.HasPrefix(e.param[8:], []byte("hello\x00")) || ne.Uint32(e.param) != 0x111 ||
				e.param[266] != 5 || e.param[267] != 3 || e.param[269] != 7 || e.param[270] != 6 || ne.Uint32(e.param[eventECE-eventParam:]) != 0x15b3 {
				t.Errorf("request %+v", e)
			}
			server := e.id
			route = b.must(cb, cmdQueryRoute, routeLen, words(uint64(memStart), server, uint32(0)))
			if dst, _ := parseSockaddr(route[164:]); dst != src {
				t.Errorf("the peer is %v, not %v", dst, src)
			}
			rtr, rts := b.qpAttr(cb, server, 2), b.qpAttr(cb, server, 3)
			if ne.Uint32(rtr) != maskState|maskAV|maskPathMTU|maskDestQPN|maskRQPSN|maskMaxDestRd|maskMinRNR || ne.Uint32(rtr[32:]) != 0x111 || ne.Uint32(rtr[12:]) != 3 ||
				rtr[qpAttrTail+7] != 5 || netip.AddrFrom16([16]byte(rtr[qpAttrAH:])).Unmap() != from || rtr[qpAttrAH+29] != 1 || rtr[qpAttrAH+30] != 1 {
				t.Errorf("attributes for RTR %x", rtr)
			}
			if want := uint8(1); !v6 && rtr[qpAttrAH+20] != want {
				t.Errorf("GID index %d", rtr[qpAttrAH+20])
			}
			if ne.Uint32(rts) != maskState|maskSQPSN|maskTimeout|maskRetry|maskRNRRetry|maskMaxRd || rts[qpAttrTail+6] != 3 || rts[qpAttrTail+11] != 7 || rts[qpAttrTail+12] != 6 {
				t.Errorf("attributes for RTS %x", rts)
			}
			b.must(cb, cmdAccept, 0, words(uint64(0xb1), param(0x222, "welcome", true), server, uint32(0)))
			e = a.expect(ca, eventConnectResponse)
			if e.uid != 0xa0 || e.param[264] != 196 || !bytes.HasPrefix(e.param[8:], []byte("welcome\x00")) || ne.Uint32(e.param) != 0x222 {
				t.Errorf("response %+v", e)
			}
			attr = a.qpAttr(ca, client, 2)
			if ne.Uint32(attr[32:]) != 0x222 || ne.Uint32(attr[24:]) != ne.Uint32(rts[28:]) || ne.Uint32(rtr[24:]) != ne.Uint32(a.qpAttr(ca, client, 3)[28:]) {
				t.Errorf("the QPs do not fit each other: %x", attr)
			}
			a.must(ca, cmdAccept, 0, words(uint64(0xa0), param(0, "", false), client, uint32(0)))
			if e = b.expect(cb, eventEstablished); e.uid != 0xb1 || e.id != server {
				t.Errorf("established %+v", e)
			}

			a.must(ca, cmdDisconnect, 0, words(client))
			if e = b.expect(cb, eventDisconnected); e.uid != 0xb1 || e.status != 0 {
				t.Errorf("disconnected %+v", e)
			}
			if _, ok := a.event(ca); ok {
				t.Error("the side that disconnects hears of it before the other has answered")
			}
			b.must(cb, cmdDisconnect, 0, words(server))
			a.expect(ca, eventDisconnected)
			time.Sleep(10 * time.Second)
			a.expect(ca, eventTimewaitExit)
			b.expect(cb, eventTimewaitExit)
			if got := a.destroyID(ca, client); got != 5 {
				t.Errorf("the client reports %d events", got)
			}
			if got := []uint32{b.destroyID(cb, server), b.destroyID(cb, listen)}; got[0] != 3 || got[1] != 1 {
				t.Errorf("the server reports %d events", got)
			}
			if a.pending[ca] != 0 || b.pending[cb] != 0 {
				t.Errorf("%d and %d events pending", a.pending[ca], b.pending[cb])
			}
		})
	}
}

func TestReject(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listening(b, cb, 1, 0x0106, "192.0.2.2:7174")
		client := resolved(a, ca, 2, 0x0106, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
		e := b.expect(cb, eventConnectRequest)
		reject := append(words(e.id, uint8(2), uint8(0), uint16(0)), append([]byte("no"), make([]byte, privateLen-2)...)...)
		b.must(cb, cmdReject, 0, reject)
		if e = a.expect(ca, eventRejected); e.status != 28 || !bytes.HasPrefix(e.param[8:], []byte("no\x00")) || e.param[264] != 148 {
			t.Errorf("rejected %+v", e)
		}
		other := resolved(a, ca, 3, 0x0106, "192.0.2.2:7175")
		a.must(ca, cmdConnect, 0, words(param(0x112, "", true), other, uint32(0)))
		if e = a.expect(ca, eventRejected); e.status != 8 || e.uid != 3 {
			t.Errorf("without a listener %+v", e)
		}
		n.mu.Lock()
		n.dead = true
		n.mu.Unlock()
		other = resolved(a, ca, 4, 0x0106, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x113, "", true), other, uint32(0)))
		time.Sleep(time.Minute)
		if e = a.expect(ca, eventUnreachable); e.status != -int32(syscall.ETIMEDOUT) {
			t.Errorf("a peer that does not answer %+v", e)
		}
	})
}

// connected connects a client of a to a listener of b, and returns the client's id.
func connected(a, b *program, ca, cb int) (client uint32) {
	a.t.Helper()
	listening(b, cb, 1, 0x0106, "192.0.2.2:7174")
	client = resolved(a, ca, 2, 0x0106, "192.0.2.2:7174")
	a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
	server := b.expect(cb, eventConnectRequest).id
	b.must(cb, cmdAccept, 0, words(uint64(3), param(0x222, "", true), server, uint32(0)))
	a.expect(ca, eventConnectResponse)
	a.must(ca, cmdAccept, 0, words(uint64(2), param(0, "", false), client, uint32(0)))
	b.expect(cb, eventEstablished)
	return client
}

// TestFailedAccept accepts requests with more private data than a reply has room for. The peer hears
// of it at once, and the listener gets its next request.
func TestFailedAccept(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listening(b, cb, 1, 0x0106, "192.0.2.2:7174")
		long := strings.Repeat("x", 200)
		for uid := range uint64(10) { // more than the backlog
			client := resolved(a, ca, 2+uid, 0x0106, "192.0.2.2:7174")
			a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
			e := b.expect(cb, eventConnectRequest)
			if _, errno := b.command(cb, cmdAccept, 0, words(uint64(0xb1), param(0x222, long, true), e.id, uint32(0))); errno != syscall.EINVAL {
				t.Fatalf("accept: %v, want EINVAL", errno)
			}
			if e := a.expect(ca, eventRejected); e.status != 28 { // rejected by the consumer
				t.Errorf("status %d", e.status)
			}
		}
		// A reply that the active side cannot accept any more is rejected, too: here there is none.
		client := resolved(a, ca, 0xaa, 0x0106, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
		e := b.expect(cb, eventConnectRequest)
		if _, errno := a.command(ca, cmdAccept, 0, words(uint64(0xaa), param(0, "", false), client, uint32(0))); errno != syscall.EINVAL {
			t.Errorf("accept before the reply: %v, want EINVAL", errno)
		}
		b.must(cb, cmdAccept, 0, words(uint64(0xb1), param(0x222, "", true), e.id, uint32(0)))
		a.expect(ca, eventConnectResponse)
	})
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listening(b, cb, 1, 0x0111, "192.0.2.2:7174")
		client := resolved(a, ca, 2, 0x0111, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0, "", true), client, uint32(0)))
		e := b.expect(cb, eventConnectRequest)
		if _, errno := b.command(cb, cmdAccept, 0, words(uint64(0xb1), param(0x222, strings.Repeat("x", 200), true), e.id, uint32(0))); errno != syscall.EINVAL {
			t.Fatalf("accept: %v, want EINVAL", errno)
		}
		if e := a.expect(ca, eventUnreachable); e.status == 0 {
			t.Error("the query was answered with success")
		}
	})
}

// TestCloseLossy ends a program, and then its supervisor, while the network loses DREQs.
// The peer must still get the event DISCONNECTED.
func TestCloseLossy(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		ca, cb := a.channel(), b.channel()
		connected(a, b, ca, cb)
		n.mu.Lock()
		n.lose = 2
		n.mu.Unlock()
		a.files[ca].Close()
		a.m.Close()
		n.services[addrA].Close()
		b.expect(cb, eventDisconnected)
	})
}

// TestDatagram executes the rdma_cm commands of udaddy.
func TestDatagram(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listening(b, cb, 1, 0x0111, "0.0.0.0:7174")
		client := resolved(a, ca, 2, 0x0111, "192.0.2.2:7174")
		attr := a.qpAttr(ca, client, 1)
		if ne.Uint32(attr) != maskState|maskPKeyIndex|maskPort|maskQKey || ne.Uint32(attr[20:]) != defaultUDPQKey {
			t.Errorf("attributes %x", attr)
		}
		a.must(ca, cmdConnect, 0, words(param(0x111, "who", true), client, uint32(0)))
		e := b.expect(cb, eventConnectRequest)
		if e.param[296] != 180 || !bytes.HasPrefix(e.param[40:], []byte("who\x00")) {
			t.Errorf("request %+v", e)
		}
		b.must(cb, cmdAccept, 0, words(uint64(3), param(0x222, "me", true), e.id, uint32(0)))
		e = a.expect(ca, eventEstablished)
		if ne.Uint32(e.param) != 0x222 || ne.Uint32(e.param[4:]) != defaultUDPQKey || e.param[296] != 136 || !bytes.HasPrefix(e.param[40:], []byte("me\x00")) ||
			netip.AddrFrom16([16]byte(e.param[8:])).Unmap() != addrB || e.param[8+20] != 1 || e.param[8+29] != 1 {
			t.Errorf("established %+v", e)
		}
		other := resolved(a, ca, 4, 0x0111, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x111, "", true), other, uint32(0)))
		e = b.expect(cb, eventConnectRequest)
		b.must(cb, cmdReject, 0, append(words(e.id, uint8(0), uint8(0), uint16(0)), make([]byte, privateLen)...))
		if e = a.expect(ca, eventUnreachable); e.status != 2 || e.uid != 4 {
			t.Errorf("rejected %+v", e)
		}
	})
}

func TestMulticast(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		ca := a.channel()
		id := a.createID(ca, 7, 0x0111)
		a.must(ca, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.1:0"), id))
		g := ne.Uint32(a.must(ca, cmdJoinIPMcast, 4, words(uint64(memStart), uint64(9), sockaddr("239.1.2.3:0"), id)))
		e := a.expect(ca, eventMulticastJoin)
		if e.uid != 9 || e.id != g || ne.Uint32(e.param) != groupQPN || ne.Uint32(e.param[4:]) != defaultUDPQKey ||
			netip.AddrFrom16([16]byte(e.param[8:])).Unmap() != netip.MustParseAddr("239.1.2.3") {
			t.Errorf("the event of joining is %+v, want that of user id 9, handle %d, QP %d, Q_Key %#x and group 239.1.2.3", e, g, groupQPN, uint32(defaultUDPQKey))
		}
		if _, errno := a.command(ca, cmdJoinIPMcast, 4, words(uint64(memStart), uint64(9), sockaddr("192.0.2.7:0"), id)); errno != syscall.EINVAL {
			t.Errorf("joining an address that is no group: %v, want EINVAL", errno)
		}
		storage := append(sockaddr("[ff0e::1]:0"), make([]byte, storageLen-sockaddrLen)...)
		six := ne.Uint32(a.must(ca, cmdJoinMcast, 4, words(uint64(memStart), uint64(10), id, uint16(sockaddrLen), uint16(0), storage)))
		if got := ne.Uint32(a.must(ca, cmdLeaveMcast, 4, words(uint64(memStart), g, uint32(0)))); got != 1 {
			t.Errorf("leaving group 239.1.2.3 says that %d events were reported, want 1", got)
		}
		synctest.Wait()
		a.must(ca, cmdLeaveMcast, 4, words(uint64(memStart), six, uint32(0)))
		if a.pending[ca] != 0 {
			t.Errorf("%d events are pending after both groups were left, want 0", a.pending[ca])
		}
		if got := a.destroyID(ca, id); got != 1 {
			t.Errorf("destroying the id says that %d events were reported, want 1", got)
		}
	})
}

// TestMigrate moves an id and its events to another channel, as librdmacm does in every
// call for ids without a channel.
func TestMigrate(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listen := listening(b, cb, 1, 0x0106, "0.0.0.0:7174")
		client := resolved(a, ca, 2, 0x0106, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
		time.Sleep(time.Second)
		synctest.Wait()
		other := b.channel()
		if got := ne.Uint32(b.must(other, cmdMigrateID, 4, words(uint64(memStart), listen, uint32(cb)))); got != 0 {
			t.Errorf("%d events reported", got)
		}
		if b.pending[cb] != 0 || b.pending[other] != 1 {
			t.Errorf("pending %v", b.pending)
		}
		e := b.expect(other, eventConnectRequest)
		b.must(other, cmdAccept, 0, words(uint64(3), param(0x222, "", true), e.id, uint32(0)))
		a.expect(ca, eventConnectResponse)
		if _, errno := b.command(cb, cmdDestroyID, 4, words(uint64(memStart), listen, uint32(0))); errno != syscall.ENOENT {
			t.Errorf("the old channel still has the id: %v", errno)
		}
		if _, errno := b.command(other, cmdMigrateID, 4, words(uint64(memStart), listen, uint32(99))); errno != syscall.EBADF {
			t.Errorf("a descriptor that is none: %v", errno)
		}
	})
}

// TestWaitForEvent blocks a GET_EVENT until an event arrives or it is cancelled, also while the
// file is closed.
func TestWaitForEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		get := append(words(uint32(cmdGetEvent), uint16(8), uint16(eventLen)), words(uint64(memStart))...)
		type result struct {
			n     int
			errno syscall.Errno
		}
		results := make(chan result, 4)
		done := func(n int, errno syscall.Errno) { results <- result{n, errno} }
		cancel := a.files[fd].Write(a, get, false, done)
		if !cancel() || cancel() {
			t.Error("a wait was not ended, or ended twice")
		}
		cancel = a.files[fd].Write(a, get, false, done)
		id := a.createID(fd, 2, 0x0106)
		a.must(fd, cmdResolveIP, 0, words(sockaddr(""), sockaddr("192.0.2.2:7174"), id, uint32(2000)))
		if r := <-results; r != (result{len(get), 0}) {
			t.Errorf("%+v", r)
		}
		if cancel() || ne.Uint32(a.mem[12:]) != eventAddrResolved || a.pending[fd] != 0 {
			t.Errorf("event %d, pending %d", ne.Uint32(a.mem[12:]), a.pending[fd])
		}
		bad := append(words(uint32(cmdGetEvent), uint16(8), uint16(eventLen)), words(uint64(1))...)
		a.must(fd, cmdResolveRoute, 0, words(id, uint32(2000)))
		synctest.Wait()
		a.files[fd].Write(a, bad, false, done)
		if r := <-results; r.errno != syscall.EFAULT {
			t.Errorf("%+v", r)
		}
		a.expect(fd, eventRouteResolved)
		cancel = a.files[fd].Write(a, get, false, done)
		a.files[fd].Close()
		synctest.Wait()
		select {
		case r := <-results:
			t.Errorf("closing the file ended a wait: %+v", r)
		default:
		}
		if !cancel() {
			t.Error("a wait on a closed file was not ended")
		}
	})
}

// slowProgram is a program whose memory waits until gate is closed.
type slowProgram struct {
	*program
	gate chan struct{}
}

func (p slowProgram) Read(addr uint64, b []byte) error {
	<-p.gate
	return p.program.Read(addr, b)
}

func (p slowProgram) Write(addr uint64, b []byte) error {
	<-p.gate
	return p.program.Write(addr, b)
}

// TestSlowMemory lets commands of a program wait for its memory. The Manager's lock is free
// meanwhile, and its goroutine delivers the events of other programs.
func TestSlowMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		slow := slowProgram{a, make(chan struct{})}
		results := make(chan syscall.Errno, 2)
		open := sync.OnceFunc(func() { close(slow.gate) })
		defer open()
		done := func(_ int, errno syscall.Errno) { results <- errno }
		fd, other := a.channel(), a.channel()
		id, otherID := a.createID(fd, 1, 0x0106), a.createID(other, 2, 0x0106)

		option := words(uint32(cmdSetOption), uint16(optionLen), uint16(0), uint64(memStart+100), id, uint32(0), uint32(0), uint32(1))
		go a.files[fd].Write(slow, option, false, done)
		synctest.Wait()
		if !a.m.mu.TryLock() {
			t.Fatal("the lock is held while memory is read")
		}
		a.m.mu.Unlock()

		get := append(words(uint32(cmdGetEvent), uint16(8), uint16(eventLen)), words(uint64(memStart+0x1000))...)
		a.files[fd].Write(slow, get, false, done)
		a.must(fd, cmdResolveIP, 0, words(sockaddr(""), sockaddr("192.0.2.2:7174"), id, uint32(2000)))
		a.must(other, cmdResolveIP, 0, words(sockaddr(""), sockaddr("192.0.2.2:7174"), otherID, uint32(2000)))
		a.expect(other, eventAddrResolved)

		open()
		for range 2 {
			if errno := <-results; errno != 0 {
				t.Error(errno)
			}
		}
		if kind := ne.Uint32(a.mem[0x1000+12:]); kind != eventAddrResolved {
			t.Errorf("event %d", kind)
		}
	})
}

// TestRefusals checks the errors of commands that cannot be executed.
func TestRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		id := a.createID(fd, 1, 0x0106)
		long := make([]byte, 300)
		for _, test := range []struct {
			name  string
			cmd   uint32
			out   int
			in    []byte
			errno syscall.Errno
		}{
			{"GET_OPTION", 13, 300, long, syscall.EINVAL},
			{"an unknown query", cmdQuery, 300, words(uint64(memStart), id, uint32(3)), syscall.ENOSYS},
			{"no room for addresses", cmdQuery, 263, words(uint64(memStart), id, uint32(0)), syscall.ENOSPC},
			{"no room for GIDs", cmdQuery, 263, words(uint64(memStart), id, uint32(2)), syscall.ENOSPC},
			{"no room for a number of paths", cmdQuery, 7, words(uint64(memStart), id, uint32(1)), syscall.ENOSPC},
			{"a command that is none", 99, 0, long, syscall.EINVAL},
			{"a short command", cmdCreateID, 4, make([]byte, 23), syscall.EINVAL},
			{"no room for the answer", cmdCreateID, 3, words(uint64(1), uint64(memStart), uint16(0x0106), make([]byte, 6)), syscall.ENOSPC},
			{"an answer to nowhere", cmdCreateID, 4, words(uint64(1), uint64(0), uint16(0x0106), make([]byte, 6)), syscall.EFAULT},
			{"an unknown port space", cmdCreateID, 4, words(uint64(1), uint64(memStart), uint16(0x0107), make([]byte, 6)), syscall.EINVAL},
			{"an id that is none", cmdListen, 0, words(uint32(77), uint32(1)), syscall.ENOENT},
			{"a foreign address", cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.99:0"), id), syscall.EADDRNOTAVAIL},
			{"a family that is none", cmdBindIP, 0, words(uint64(0), uint16(77), make([]byte, 26), id), syscall.EINVAL},
			{"a route without address", cmdResolveRoute, 0, words(id, uint32(1)), syscall.EINVAL},
			{"attributes without device", cmdInitQPAttr, qpAttrLen, words(uint64(memStart), id, uint32(1)), syscall.EINVAL},
			{"connect without route", cmdConnect, 0, words(param(1, "", true), id, uint32(0)), syscall.EINVAL},
			{"accept without request", cmdAccept, 0, words(uint64(1), param(1, "", true), id, uint32(0)), syscall.EINVAL},
			{"disconnect without connection", cmdDisconnect, 0, words(id), syscall.EINVAL},
			{"no events", cmdGetEvent, eventLen, words(uint64(memStart)), syscall.EAGAIN},
			{"no room for an event", cmdGetEvent, 300, words(uint64(memStart)), syscall.ENOSPC},
		} {
			before := len(a.records)
			if _, errno := a.command(fd, test.cmd, test.out, test.in); errno != test.errno {
				t.Errorf("%s: %v, want %v", test.name, errno, test.errno)
			}
			// Each refusal has a record, except for questions for events.
			refused := 0
			for _, r := range a.records[before:] {
				if r.Errno == test.errno {
					refused++
				}
			}
			want := 1
			if test.cmd == cmdGetEvent || test.errno == syscall.EFAULT {
				want = 0
			}
			if refused != want {
				t.Errorf("%s: %d records of the refusal, want %d: %+v", test.name, refused, want, a.records[before:])
			}
		}
		if len(a.m.ids) != 1 {
			t.Errorf("%d ids", len(a.m.ids))
		}
		a.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.1:7000"), id))
		other := a.createID(fd, 1, 0x0106)
		if _, errno := a.command(fd, cmdBindIP, 0, words(uint64(0), sockaddr("0.0.0.0:7000"), other)); errno != syscall.EADDRINUSE {
			t.Errorf("a port that is taken: %v", errno)
		}
		copy(a.mem[100:], []byte{1, 0, 0, 0})
		a.must(fd, cmdSetOption, 0, words(uint64(memStart+100), other, uint32(0), uint32(1), uint32(4)))
		a.must(fd, cmdSetOption, 0, words(uint64(memStart+100), other, uint32(0), uint32(3), uint32(1)))
		for _, bad := range [][]uint32{{0, 1, 1}, {0, 0, 4}, {1, 1, 64}, {0, 4, 1}} {
			if _, errno := a.command(fd, cmdSetOption, 0, words(uint64(memStart+100), other, bad[0], bad[1], bad[2])); errno == 0 {
				t.Errorf("option %v was taken", bad)
			}
		}
		if _, errno := a.command(fd, cmdSetOption, 0, words(uint64(1), other, uint32(0), uint32(1), uint32(4))); errno != syscall.EFAULT {
			t.Errorf("an option at an address that is not there: %v", errno)
		}
		private := strings.Repeat("x", 57)
		client := resolved(a, fd, 5, 0x0106, "192.0.2.2:1")
		if _, errno := a.command(fd, cmdConnect, 0, words(param(1, private, true), client, uint32(0))); errno != syscall.EINVAL {
			t.Errorf("too much private data: %v", errno)
		}
	})
}

// TestWriteEvent fetches the events that a program has written, and fills the queue of them.
func TestWriteEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		id := a.createID(fd, 7, 0x0106)
		write := func(kind uint32) []byte {
			return words(id, uint32(0), kind, uint32(0xfffffffe), uint64(0x1122334455667788), make([]byte, writeEventLen-24))
		}
		for _, kind := range []uint32{eventUser, eventInternal} {
			a.must(fd, cmdWriteEvent, 0, write(kind))
			if a.pending[fd] != 1 {
				t.Error("the event is not pending when the command returns")
			}
			if e := a.expect(fd, kind); e.uid != 7 || e.id != id || e.status != -2 || ne.Uint64(e.param) != 0x1122334455667788 {
				t.Errorf("the event is %+v", e)
			}
		}
		if _, errno := a.command(fd, cmdWriteEvent, 0, write(eventEstablished)); errno != syscall.EINVAL {
			t.Errorf("an event of the connection manager: %v", errno)
		}
		if _, errno := a.command(fd, cmdWriteEvent, 0, write(eventUser)[:writeEventLen-1]); errno != syscall.EINVAL {
			t.Errorf("a short command: %v", errno)
		}
		for range maxRequests {
			a.must(fd, cmdWriteEvent, 0, write(eventUser))
		}
		if _, errno := a.command(fd, cmdWriteEvent, 0, write(eventUser)); errno != syscall.ENOMEM {
			t.Errorf("one event too many: %v", errno)
		}
		a.destroyID(fd, id)
		if a.pending[fd] != 0 {
			t.Errorf("%d events pending after the id was destroyed", a.pending[fd])
		}
	})
}

// TestWriteEventWakes writes an event for a command that waits.
func TestWriteEventWakes(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		id := a.createID(fd, 7, 0x0106)
		get := append(ne.AppendUint32(nil, cmdGetEvent), words(uint16(8), uint16(eventLen), uint64(memStart))...)
		done := make(chan syscall.Errno, 1)
		a.files[fd].Write(a, get, false, func(_ int, errno syscall.Errno) { done <- errno })
		a.must(fd, cmdWriteEvent, 0, words(id, uint32(0), uint32(eventUser), uint32(0), uint64(9), make([]byte, writeEventLen-24)))
		if errno := <-done; errno != 0 || ne.Uint32(a.mem[12:]) != eventUser || ne.Uint64(a.mem[eventParam:]) != 9 {
			t.Errorf("%v: kind %d", errno, ne.Uint32(a.mem[12:]))
		}
	})
}

// TestDestroyListener destroys a listener with unfetched requests, which must be refused.
func TestDestroyListener(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb, ca := b.channel(), a.channel()
		listen := listening(b, cb, 1, 0x0106, "0.0.0.0:7174")
		client := resolved(a, ca, 2, 0x0106, "192.0.2.2:7174")
		a.must(ca, cmdConnect, 0, words(param(0x111, "", true), client, uint32(0)))
		time.Sleep(time.Second)
		synctest.Wait()
		if b.pending[cb] != 1 {
			t.Fatalf("%d events pending", b.pending[cb])
		}
		b.destroyID(cb, listen)
		if e := a.expect(ca, eventRejected); e.status != 28 {
			t.Errorf("%+v", e)
		}
		if len(b.m.ids) != 0 || b.pending[cb] != 0 {
			t.Error("a request of a listener that is gone stays")
		}
	})
}

// TestLoopback binds to the loopback address that the system chooses for a client,
// on a device with another one.
func TestLoopback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := netip.MustParseAddr("127.0.0.7")
		s := cmcore.New(&network{}, cmcore.Options{})
		defer s.Close()
		p := &program{t: t, m: New(Config{Devices: []Device{{Service: s, Port: 1, MTU: 1024, GIDs: []netip.Addr{own}}}}), mem: make([]byte, 1<<12)}
		defer p.m.Close()
		fd := p.channel()
		defer p.files[fd].Close()
		id := p.createID(fd, 1, 0x0106)
		p.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr("127.0.0.1:0"), id))
		route := p.must(fd, cmdQueryRoute, routeLen, words(uint64(memStart), id, uint32(0)))
		if src, _ := parseSockaddr(route[136:]); src.Addr() != own || src.Port() == 0 {
			t.Errorf("bound to %v", src)
		}
		server := p.createID(fd, 2, 0x0106)
		if _, errno := p.command(fd, cmdBindIP, 0, words(uint64(0), sockaddr("127.0.0.1:7471"), server)); errno != syscall.EADDRNOTAVAIL {
			t.Errorf("a server at an address that the device does not have: %v", errno)
		}
	})
}

// TestTrace checks the records of a listener, of a refused command and of a request.
func TestTrace(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *network, a, b *program) {
		fd := b.channel()
		id := b.createID(fd, 1, 0x0106)
		if _, errno := b.command(fd, cmdListen, 0, words(uint32(99), uint32(1))); errno != syscall.ENOENT {
			t.Fatalf("listening with an id that does not exist: %v", errno)
		}
		b.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.2:7471"), id))
		b.must(fd, cmdListen, 0, words(id, uint32(1)))
		from := a.channel()
		client := a.createID(from, 1, 0x0106)
		a.must(from, cmdResolveIP, 0, words(sockaddr(""), sockaddr("192.0.2.2:7471"), client, uint32(100)))
		a.expect(from, eventAddrResolved)
		a.must(from, cmdResolveRoute, 0, words(client, uint32(100)))
		a.expect(from, eventRouteResolved)
		a.must(from, cmdConnect, 0, words(param(1, "", true), client, uint32(0), uint64(0)))
		request := b.expect(fd, eventConnectRequest)

		local := netip.MustParseAddrPort("192.0.2.2:7471")
		want := []Record{
			{Process: b, ID: id, Action: "create"},
			{Process: b, ID: 99, Action: "listen", Errno: syscall.ENOENT},
			{Process: b, ID: id, Action: "bind", Local: local},
			{Process: b, ID: id, Action: "listen", Local: local},
			{ID: request.id, Action: "CONNECT_REQUEST", Event: true, Local: local},
		}
		if len(b.records) != len(want) {
			t.Fatalf("%d records: %+v", len(b.records), b.records)
		}
		for i, w := range want {
			got := b.records[i]
			if got.Event {
				got.Remote = netip.AddrPort{} // the client's port is random
			}
			if got != w {
				t.Errorf("record %d is %+v, not %+v", i, got, w)
			}
		}
	})
}

// TestXRC connects an id of a sending XRC QP to a listener for receiving ones, and checks which
// attributes each side's QP gets: the sender has those of the requester, the receiver those of
// the responder. A listener for RC refuses the request.
func TestXRC(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		ca, cb := a.channel(), b.channel()
		create := func(p *program, fd int, uid uint64, qpType uint8) uint32 {
			return ne.Uint32(p.must(fd, cmdCreateID, 4, words(uid, uint64(memStart), uint16(0x013f), qpType, make([]byte, 5))))
		}
		listen := func(uid uint64, addr string, qpType uint8) {
			id := create(b, cb, uid, qpType)
			b.must(cb, cmdBindIP, 0, words(uint64(0), sockaddr(addr), id))
			b.must(cb, cmdListen, 0, words(id, uint32(8)))
		}
		connect := func(addr string) uint32 {
			id := create(a, ca, 0xa0, 9)
			a.must(ca, cmdResolveIP, 0, words(sockaddr(""), sockaddr(addr), id, uint32(2000)))
			a.expect(ca, eventAddrResolved)
			a.must(ca, cmdResolveRoute, 0, words(id, uint32(2000)))
			a.expect(ca, eventRouteResolved)
			a.must(ca, cmdConnect, 0, words(param(7, "", true), id, uint32(0)))
			return id
		}
		listen(0xb0, "0.0.0.0:7174", 10)
		listen(0xb1, "0.0.0.0:7175", 2)
		sender := connect("192.0.2.2:7174")
		request := b.expect(cb, eventConnectRequest)
		for state, want := range map[uint32]uint32{2: maskMaxDestRd | maskMinRNR, 3: maskTimeout} {
			b := b.must(cb, cmdInitQPAttr, qpAttrLen, words(uint64(memStart), request.id, state))
			if got := ne.Uint32(b) & (maskMaxDestRd | maskMinRNR | maskTimeout | maskRetry | maskRNRRetry | maskMaxRd); got != want {
				t.Errorf("receiver, state %d: mask %#x, expected %#x", state, got, want)
			}
		}
		b.must(cb, cmdAccept, 0, words(uint64(0xb2), param(8, "", true), request.id, uint32(0)))
		a.expect(ca, eventConnectResponse)
		for state, want := range map[uint32]uint32{2: 0, 3: maskTimeout | maskRetry | maskRNRRetry | maskMaxRd} {
			b := a.must(ca, cmdInitQPAttr, qpAttrLen, words(uint64(memStart), sender, state))
			if got := ne.Uint32(b) & (maskMaxDestRd | maskMinRNR | maskTimeout | maskRetry | maskRNRRetry | maskMaxRd); got != want {
				t.Errorf("sender, state %d: mask %#x, expected %#x", state, got, want)
			}
		}
		connect("192.0.2.2:7175")
		a.expect(ca, eventRejected)
	})
}
