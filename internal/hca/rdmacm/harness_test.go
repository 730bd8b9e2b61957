package rdmacm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/device/cmcore"
)

var (
	addrA  = netip.MustParseAddr("192.0.2.1")
	addrB  = netip.MustParseAddr("192.0.2.2")
	addrB6 = netip.MustParseAddr("2001:db8::2")
)

// network joins services by address in virtual time.
type network struct {
	mu       sync.Mutex
	services map[netip.Addr]*cmcore.Service
	dead     bool
	lose     int // the next MADs are lost
}

func (n *network) Send(p cmcore.Path, b []byte) error {
	n.mu.Lock()
	s, dead := n.services[p.Remote], n.dead
	if n.lose > 0 {
		n.lose--
		dead = true
	}
	n.mu.Unlock()
	if s != nil && !dead {
		time.AfterFunc(time.Millisecond, func() { s.Receive(cmcore.Path{Local: p.Remote, Remote: p.Local}, b) })
	}
	return nil
}

// program is a program that uses rdma_cm: its memory is from address 0x1000 on,
// and its descriptors are the indexes of files.
type program struct {
	t     *testing.T
	m     *Manager
	mem   []byte
	files []*File

	mu      sync.Mutex
	pending []int // by file
	records []Record
}

// take keeps a record of the trace.
func (p *program) take(r Record) {
	if a, ok := r.Process.(*answer); ok {
		r.Process = a.program
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, r)
}

const memStart = 0x1000

// answer is a program as the Process of one of its commands. It records how far that command writes. A GET_EVENT
// that waits has the program itself as its Process: it may write its event while the other command runs.
type answer struct {
	*program
	end int // end of the memory that the command has written
}

func (a *answer) Write(addr uint64, b []byte) error {
	if err := a.program.Write(addr, b); err != nil {
		return err
	}
	a.end = max(a.end, int(addr-memStart)+len(b))
	return nil
}

func (p *program) Read(addr uint64, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr < memStart || addr-memStart+uint64(len(b)) > uint64(len(p.mem)) {
		return errors.New("no memory")
	}
	copy(b, p.mem[addr-memStart:])
	return nil
}

func (p *program) Write(addr uint64, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr < memStart || addr-memStart+uint64(len(b)) > uint64(len(p.mem)) {
		return errors.New("no memory")
	}
	copy(p.mem[addr-memStart:], b)
	return nil
}

func (p *program) File(fd int) *File {
	if fd < 0 || fd >= len(p.files) {
		return nil
	}
	return p.files[fd]
}

// channel opens the device once more and returns the descriptor.
func (p *program) channel() int {
	fd := len(p.files)
	p.pending = append(p.pending, 0)
	p.files = append(p.files, p.m.Open(func(delta int) {
		p.mu.Lock()
		p.pending[fd] += delta
		p.mu.Unlock()
	}))
	return fd
}

// counts returns the number of the program's ids, and of the events that wait on a descriptor.
func (p *program) counts(fd int) (ids, events int) {
	p.m.mu.Lock()
	ids = len(p.m.ids)
	p.m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return ids, p.pending[fd]
}

// command executes a command that answers at once, and returns the answer, for which there is room for out bytes.
func (p *program) command(fd int, cmd uint32, out int, in []byte) ([]byte, syscall.Errno) {
	p.t.Helper()
	b := ne.AppendUint32(nil, cmd)
	b = ne.AppendUint16(b, uint16(len(in)))
	b = ne.AppendUint16(b, uint16(out))
	b = append(b, in...)
	memory := &answer{program: p}
	var errno syscall.Errno
	called := 0
	p.files[fd].Write(memory, b, true, func(n int, e syscall.Errno) {
		called++
		errno = e
		if e == 0 && n != len(b) {
			p.t.Errorf("command %d returned %d of %d", cmd, n, len(b))
		}
	})
	if called != 1 {
		p.t.Fatalf("command %d was answered %d times", cmd, called)
	}
	if memory.end > out {
		p.t.Errorf("command %d wrote %d bytes, and there is room for %d", cmd, memory.end, out)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.mem[:out]), errno
}

// must fails the test on an error.
func (p *program) must(fd int, cmd uint32, out int, in []byte) []byte {
	p.t.Helper()
	b, errno := p.command(fd, cmd, out, in)
	if errno != 0 {
		p.t.Fatalf("command %d: %v", cmd, errno)
	}
	return b
}

// words builds the bytes of a structure from values of its fields.
func words(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		var err error
		if b, err = binary.Append(b, ne, f); err != nil {
			panic(err)
		}
	}
	return b
}

func sockaddr(s string) []byte {
	b := make([]byte, sockaddrLen)
	if s != "" {
		putSockaddr(b, netip.MustParseAddrPort(s))
	}
	return b
}

func (p *program) createID(fd int, uid uint64, space uint16) uint32 {
	p.t.Helper()
	return ne.Uint32(p.must(fd, cmdCreateID, 4, words(uid, uint64(memStart), space, uint8(0), make([]byte, 5))))
}

func (p *program) destroyID(fd int, id uint32) uint32 {
	p.t.Helper()
	return ne.Uint32(p.must(fd, cmdDestroyID, 4, words(uint64(memStart), id, uint32(0))))
}

func param(qpn uint32, private string, valid bool) []byte {
	b := make([]byte, connParamLen)
	connParam{qpn: qpn, private: []byte(private), responderResources: 3, initiatorDepth: 5, retryCount: 7, rnrRetry: 6, valid: valid}.put(b)
	return b
}

// seen is an event that the program fetched.
type seen struct {
	uid      uint64
	id, kind uint32
	status   int32
	param    []byte
}

// event lets virtual time pass and fetches the next event.
func (p *program) event(fd int) (seen, bool) {
	p.t.Helper()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	b, errno := p.command(fd, cmdGetEvent, eventLen, words(uint64(memStart)))
	if errno == syscall.EAGAIN {
		return seen{}, false
	}
	if errno != 0 {
		p.t.Fatalf("GET_EVENT: %v", errno)
	}
	return seen{ne.Uint64(b), ne.Uint32(b[8:]), ne.Uint32(b[12:]), int32(ne.Uint32(b[16:])), b[eventParam:]}, true
}

// expect fetches an event of a kind.
func (p *program) expect(fd int, kind uint32) seen {
	p.t.Helper()
	e, ok := p.event(fd)
	if !ok || e.kind != kind {
		p.t.Fatalf("event %+v, %v; expected kind %d", e, ok, kind)
	}
	return e
}

// inBubble runs a test in virtual time with two programs on two hosts.
func inBubble(t *testing.T, f func(t *testing.T, n *network, a, b *program)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{services: make(map[netip.Addr]*cmcore.Service)}
		start := func(guid uint64, gids ...netip.Addr) *program {
			s := cmcore.New(n, cmcore.Options{GUID: guid})
			for _, g := range gids {
				if g.IsValid() {
					n.services[g] = s
				}
			}
			p := &program{t: t, mem: make([]byte, 1<<16)}
			p.m = New(Config{Devices: []Device{{Service: s, NodeGUID: guid, Port: 1, MTU: 1024, GIDs: gids}}, Trace: p.take})
			return p
		}
		a, b := start(0xa, netip.Addr{}, addrA, netip.MustParseAddr("2001:db8::1")), start(0xb, netip.Addr{}, addrB, addrB6)
		f(t, n, a, b)
		for _, p := range []*program{a, b} {
			for _, f := range p.files {
				f.Close()
			}
			if len(p.m.ids)+len(p.m.groups) != 0 {
				t.Error("ids stay when their files are closed")
			}
			p.m.Close()
		}
		for _, s := range n.services {
			s.Close()
		}
	})
}
