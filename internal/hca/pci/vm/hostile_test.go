//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/recorded"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

var (
	hostileTime = flag.Duration("hostile", 0, "how long TestHostileGuest runs, with softmkey pci as processes of their own")
	hostileSeed = flag.Uint64("hostile.seed", 1, "the seed of its first round")
)

// mostAnonymous is the memory that an adapter may take beside the guest's.
const mostAnonymous = 1 << 30

// server is an adapter that is being served.
type server struct {
	path string
	pid  int // 0: in this process
	said *bytes.Buffer
	end  chan error // receives the cause of the end
}

// startHere serves an adapter in this process.
func startHere(t *testing.T, path, network string) *server {
	l, link := listen(t, path, network)
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{path: path, end: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.end <- Serve(ctx, l, Options{Link: link, Device: pci.Config{MAC: guestMAC[:]}})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// listen opens a network and a socket for the guests of an adapter.
func listen(t *testing.T, path, network string) (*unixsocket.Listener, frames.Link) {
	t.Helper()
	link, err := frames.Open("unix:" + network)
	fatal.If(t, err)
	l, err := unixsocket.Listen("unix", path)
	fatal.If(t, err)
	return l, link
}

// startProcess runs softmkey pci.
func startProcess(t *testing.T, softmkey, path, network string) *server {
	s := &server{path: path, said: new(bytes.Buffer), end: make(chan error, 1)}
	c := exec.Command(softmkey, "pci", "--socket", path, "--net", "unix:"+network, "--mac", net.HardwareAddr(guestMAC[:]).String())
	c.Stderr = s.said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	fatal.If(t, c.Start())
	s.pid = c.Process.Pid
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.end <- c.Wait()
	}()
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM) // an interrupt may be ignored
		<-done
		if t.Failed() {
			said := s.said.String()
			t.Logf("%s said:\n%s", path, said[max(0, len(said)-8000):])
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return s
		} else if time.Now().After(end) {
			t.Fatalf("nobody listens at %s", path)
		}
	}
}

// running fails the test if the server has ended.
func (s *server) running(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.end:
		s.end <- err
		t.Fatalf("the server of %s has ended: %v", s.path, err)
	default:
	}
}

// anonymous returns the bytes of memory that the server's process has for itself.
func (s *server) anonymous() int {
	if s.pid == 0 {
		return 0
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
			n, _ := strconv.Atoi(f[1])
			return n << 10
		}
	}
	return 0
}

// A guest, its monitor and its network do what they like, for as long as -hostile says: random and
// mutated commands, requests, page lists, doorbells, accesses, vfio-user messages and frames.
// The server goes on and serves a good guest after each round. No byte outside of the guest's
// memory is read or written; the memory that the server takes is bounded; and the guest of
// another adapter, which gets the hostile one's frames, goes on.
func TestHostileGuest(t *testing.T) {
	record, err := recorded.Linux612()
	fatal.If(t, err)
	dir := t.TempDir()
	start := func(name string) *server {
		return startHere(t, filepath.Join(dir, name+".sock"), filepath.Join(dir, name+".net"))
	}
	rounds, operations := 2, 400
	if *hostileTime > 0 {
		softmkey := filepath.Join(dir, "softmkey")
		build := exec.Command("go", "build", "-o", softmkey, "../../../../cmd/softmkey")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		start = func(name string) *server {
			return startProcess(t, softmkey, filepath.Join(dir, name+".sock"), filepath.Join(dir, name+".net"))
		}
		rounds, operations = 1<<30, 5000
	}
	bad, neighbour := start("bad"), start("neighbour")
	wires := newWires(t, filepath.Join(dir, "bad.net"), filepath.Join(dir, "neighbour.net"))
	good := newGood(t, neighbour, record)

	begun, told := time.Now(), time.Now()
	count := map[string]int{}
	total, most, slowest := 0, 0, time.Duration(0)
	var last int64
	round := 0
	for ; round < rounds && (*hostileTime == 0 || time.Since(begun) < *hostileTime); round++ {
		seed := *hostileSeed + uint64(round)
		h := &hostile{rand: rand.New(rand.NewPCG(seed, 14)), record: record, count: count, wires: wires, server: bad}
		if err := h.round(operations); err != nil {
			bad.running(t)
			t.Fatalf("seed %d: %v", seed, err)
		}
		bad.running(t)
		total += operations
		if most = max(most, h.most); most > mostAnonymous {
			t.Fatalf("seed %d: the server has %d MiB of memory", seed, most>>20)
		}
		checked := time.Now()
		if err := prove(bad.path, record); err != nil {
			bad.running(t)
			t.Fatalf("a good guest after seed %d: %v", seed, err)
		}
		slowest = max(slowest, time.Since(checked))
		if n := good.done(t); *hostileTime == 0 {
			for ; n == last; n = good.done(t) { // until the neighbour has come on
				time.Sleep(time.Millisecond)
			}
			last = n
		} else if time.Since(told) > time.Minute {
			if n == last {
				t.Fatalf("seed %d: the neighbour stands still", seed)
			}
			fmt.Printf("%v: %d operations in %d rounds, %d MiB now and %d at most, neighbour %d writes (%d in %v), a good guest took up to %v\n",
				time.Since(begun).Round(time.Second), total, round+1, bad.anonymous()>>20, most>>20, n, n-last, time.Since(told).Round(time.Second), slowest.Round(time.Millisecond))
			last, told, slowest = n, time.Now(), 0
		}
	}
	if wires.leaked.Load() {
		t.Error("a frame has bytes that are not the guest's")
	}
	t.Logf("%d operations in %d rounds, %v; %d frames came out; the neighbour has written %d pages; %d MiB of memory at most", total, round, count, wires.frames.Load(), good.done(t), most>>20)
}

// prove runs a good guest.
func prove(path string, record []recorded.Command) error {
	m, err := connect(path)
	if err != nil {
		return err
	}
	defer m.close()
	tr, err := m.newTraffic(record)
	for i := 0; err == nil && i < 8; i++ {
		err = tr.once()
	}
	return err
}

// good is a guest of another adapter, with traffic all the time.
type good struct {
	writes atomic.Int64
	failed chan error
}

func newGood(t *testing.T, s *server, record []recorded.Command) *good {
	m, err := connect(s.path)
	fatal.If(t, err)
	tr, err := m.newTraffic(record)
	fatal.If(t, err)
	g := &good{failed: make(chan error, 1)}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			if err := tr.once(); err != nil {
				g.failed <- err
				return
			}
			g.writes.Add(1)
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop.Store(true)
		wg.Wait()
		m.close()
	})
	return g
}

// done returns how many pages the guest has written.
func (g *good) done(t *testing.T) int64 {
	t.Helper()
	select {
	case err := <-g.failed:
		t.Fatalf("the neighbour's guest: %v", err)
	default:
	}
	return g.writes.Load()
}

// wires are the networks of the two adapters: what the hostile one sends goes to the other.
type wires struct {
	bad, neighbour *net.UnixConn
	frames         atomic.Int64
	leaked         atomic.Bool

	mu   sync.Mutex
	seen [][]byte // some of the hostile guest's frames
}

func newWires(t *testing.T, bad, neighbour string) *wires {
	w := &wires{}
	dial := func(path string) *net.UnixConn {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err == nil {
				return c
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	w.bad, w.neighbour = dial(bad), dial(neighbour)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, w.neighbour) })
	wg.Go(func() {
		b := make([]byte, frames.MaxFrame)
		for {
			n, err := w.bad.Read(b)
			if err != nil || n == 0 {
				return
			}
			w.carry(b[:n])
		}
	})
	t.Cleanup(func() {
		w.bad.Close()
		w.neighbour.Close()
		wg.Wait()
	})
	return w
}

func (w *wires) carry(frame []byte) {
	n := w.frames.Add(1)
	if bytes.Contains(frame, secret) {
		w.leaked.Store(true)
	}
	inject(w.neighbour, frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) < 64 {
		w.seen = append(w.seen, nil)
	}
	w.seen[int(n)%len(w.seen)] = bytes.Clone(frame)
}

// inject sends a frame, or loses it.
func inject(c *net.UnixConn, frame []byte) {
	raw, err := c.SyscallConn()
	if err != nil || len(frame) == 0 {
		return
	}
	raw.Write(func(fd uintptr) bool {
		unix.SendmsgN(int(fd), frame, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
}

// hostile is one round of a hostile guest.
type hostile struct {
	rand   *rand.Rand
	record []recorded.Command
	count  map[string]int
	wires  *wires
	server *server
	most   int // bytes of memory that the server had for itself

	m       *monitor
	tame    bool // what is made now is mostly valid, so that it comes far
	queues  []*guestQueue
	numbers []uint32 // of objects
	psvs    []uint32
	layouts []uint32 // keys with lists
	passing bool     // the range that comes and goes is there
	left    []byte   // what it had when it went
}

// errGone is the end of a round because the server has sent the client away.
var errGone = errors.New("the server has closed the connection")

func (h *hostile) round(operations int) (err error) {
	if h.m, err = connect(h.server.path); err != nil {
		return err
	}
	defer h.m.close()
	if err := h.prepare(); err != nil {
		return err
	}
	all := []struct {
		name   string
		weight int
		do     func() error
	}{
		{"commands", 30, h.command}, {"requests", 30, h.request}, {"doorbells", 10, h.doorbell}, {"memory", 10, h.poke}, {"accesses", 6, h.access},
		{"messages", 4, h.message}, {"frames", 20, h.frame}, {"maps", 2, h.remap}, {"floods", 1, h.flood}, {"resets", 1, h.reset}, {"silences", 2, h.silence},
	}
	weights := 0
	for _, o := range all {
		weights += o.weight
	}
	cut := h.rand.IntN(8) == 0 // the monitor truncates the memory's file
	for i := range operations {
		if cut && i == operations-20 {
			h.count["truncations"]++
			if err := unix.Ftruncate(h.m.file, gap+4096); err != nil {
				return err
			}
			return h.blind()
		}
		n := h.rand.IntN(weights)
		for _, o := range all {
			if n -= o.weight; n >= 0 {
				continue
			}
			h.count[o.name]++
			if err := o.do(); err != nil {
				if errors.Is(err, errGone) {
					h.count["sent away"]++
					break
				}
				return fmt.Errorf("operation %d of %s: %w", i, o.name, err)
			}
			break
		}
	}
	if err := h.check(); err != nil {
		return err
	}
	if h.rand.IntN(2) == 0 {
		return nil // gone in the midst of it
	}
	_, err = h.m.call(msgReset, nil)
	return errors.Join(err, h.check())
}

// check looks at memory that is not the guest's.
func (h *hostile) check() error {
	for _, hole := range holes() {
		for at := hole; at < hole+gap; at += len(secret) {
			if !bytes.Equal(h.m.all[at:at+len(secret)], secret) {
				return fmt.Errorf("byte %#x of the file is not the guest's, and was changed", at)
			}
		}
	}
	if at := bytes.Index(h.m.all[fileDriver:fileDriver+driverSize], secret); at >= 0 {
		return fmt.Errorf("the guest has read bytes that are not its own: they are at %#x", uint64(driverAt)+uint64(at))
	}
	if n := len(bytes.TrimLeft(h.m.all[fileReadOnly:fileReadOnly+partSize], "\x00")); n > 0 {
		return fmt.Errorf("memory that can only be read was changed, %d bytes before its end", n)
	}
	if !h.passing && !bytes.Equal(h.left, h.m.all[filePassing:filePassing+partSize]) {
		return fmt.Errorf("memory that was taken away was changed")
	}
	return nil
}

// blind goes on without the memory for a while.
func (h *hostile) blind() error {
	for range 20 {
		for _, q := range h.queues {
			if err := h.m.write(anyUAR*4096+prm.UARBlue, be.AppendUint32(be.AppendUint32(nil, 0), q.number<<8)); err != nil {
				return err
			}
		}
		if err := h.m.write32(regDoorbell, h.rand.Uint32()); err != nil {
			return err
		}
		h.frame()
		if _, err := h.m.read32(regHealth); err != nil {
			return err
		}
	}
	return nil
}

// prepare boots the adapter and makes queues.
func (h *hostile) prepare() error {
	h.queues, h.numbers, h.layouts, h.passing = nil, nil, nil, true
	if err := h.m.boot(h.record); err != nil {
		return err
	}
	for _, service := range []uint8{prm.QPServiceRC, prm.QPServiceRC, prm.QPServiceRC, prm.QPServiceUC, prm.QPServiceUD, prm.QPServiceUMR} {
		var first *guestQueue
		if len(h.queues) > 0 {
			first = h.queues[0]
		}
		q, err := h.m.newQueue(service, first)
		if err != nil {
			return err
		}
		h.queues = append(h.queues, q)
		h.numbers = append(h.numbers, q.number, q.cqn, q.pd, q.dma>>8)
	}
	a, b, c := h.queues[0], h.queues[1], h.queues[2]
	if err := errors.Join(a.connect(b.number, guestIP, guestMAC), b.connect(a.number, guestIP, guestMAC), c.connect(5, peerIP, peerMAC)); err != nil {
		return err
	}
	for _, q := range h.queues[3:] {
		if err := q.connect(6, peerIP, peerMAC); err != nil {
			return err
		}
	}
	for _, mode := range []uint8{prm.AccessModeMTT, prm.AccessModeKLM, prm.AccessModeKSM} {
		in := command(prm.CmdCreateMKey, 272)
		for _, f := range [][3]uint64{{0x01, 1, 1}, {0x10, 1, 1}, {0x11, 5, 31}, {0x16, 2, uint64(mode)}, {0x20, 24, 0xffffff}, {0x61, 1, uint64(h.rand.IntN(2))}, {0x68, 24, uint64(a.pd)}, {0x100, 32, 4}, {0x1a0, 32, 256}} {
			prm.SetBits(in, 0x80+int(f[0]), int(f[1]), f[2])
		}
		out, err := h.m.must(in, 16)
		if err != nil {
			return err
		}
		h.numbers = append(h.numbers, prm.NumberOf(out))
		h.layouts = append(h.layouts, prm.NumberOf(out))
	}
	out, err := h.m.must(fourPSVs(a.pd), 0x20)
	if err != nil {
		return err
	}
	h.psvs = h.psvs[:0]
	for i := range 4 {
		h.psvs = append(h.psvs, be.Uint32(out[0x10+4*i:])&0xffffff)
	}
	return nil
}

// address returns an address of some kind.
func (h *hostile) address() uint64 {
	off := uint64(h.rand.IntN(1 << 20))
	if h.tame {
		return driverRoom + 1<<20 + off
	}
	if h.rand.IntN(3) > 0 {
		off &^= 4095
	}
	switch h.rand.IntN(12) {
	case 0:
		return off + lowMemory - 1<<19 // beyond the end, or across it
	case 1:
		return readOnlyAt + off
	case 2:
		return passingAt + off
	case 3:
		return unreachable + off
	case 4:
		return ^uint64(0) - off
	case 5:
		return h.rand.Uint64()
	case 6:
		return driverAt + driverSize - 1<<18 + off
	case 7:
		q := h.queues[h.rand.IntN(len(h.queues))]
		return [...]uint64{q.ring, q.record, q.entries, q.cqRecord}[h.rand.IntN(4)] + uint64(h.rand.IntN(64))&^3
	}
	return driverRoom + 1<<20 + off
}

// word returns 32 bits of some kind.
func (h *hostile) word() uint32 {
	switch h.rand.IntN(6) {
	case 0:
		return uint32(h.rand.IntN(64))
	case 1:
		return 1 << h.rand.IntN(32)
	case 2:
		return h.numbers[h.rand.IntN(len(h.numbers))]
	case 3:
		return h.key()
	case 4:
		return ^uint32(h.rand.IntN(16))
	}
	return h.rand.Uint32()
}

// key returns the number of a key, or of none.
func (h *hostile) key() uint32 {
	if h.tame && h.rand.IntN(8) > 0 {
		if h.rand.IntN(2) == 0 {
			return h.queues[0].dma
		}
		return h.layouts[h.rand.IntN(len(h.layouts))]<<8 | h.rand.Uint32()&7
	}
	return h.numbers[h.rand.IntN(len(h.numbers))]<<8 | [...]uint32{3, 0, 0, h.rand.Uint32() & 255}[h.rand.IntN(4)]
}

// random returns n bytes of any kind.
func (h *hostile) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.rand.Uint32())
	}
	return b
}

// sparse returns a byte with few bits.
func (h *hostile) sparse() byte {
	x := h.rand.Uint32()
	return byte(x & (x >> 8) & (x >> 16))
}

// length returns a number of bytes.
func (h *hostile) length() uint32 {
	if h.tame {
		return uint32(h.rand.IntN(9000))
	}
	switch h.rand.IntN(8) {
	case 0:
		return h.rand.Uint32() >> h.rand.IntN(12)
	case 1:
		return 0
	case 2:
		return 1 << 20
	}
	return uint32(h.rand.IntN(9000))
}

// mutate changes some bytes, words and addresses.
func (h *hostile) mutate(b []byte) {
	for range h.rand.IntN(5) {
		if len(b) < 8 {
			return
		}
		switch at := h.rand.IntN(len(b)); h.rand.IntN(4) {
		case 0:
			b[at] = byte(h.rand.Uint32())
		case 1:
			b[at] ^= 1 << h.rand.IntN(8)
		case 2:
			if at &^= 3; at+4 <= len(b) {
				be.PutUint32(b[at:], h.word())
			}
		case 3:
			if at &^= 7; at+8 <= len(b) {
				be.PutUint64(b[at:], h.address())
			}
		}
	}
}

// command executes a mutated command of the record, or one of our own.
func (h *hostile) command() error {
	c := &h.record[h.rand.IntN(len(h.record))]
	in, outLen := bytes.Clone(c.In), len(c.Out)
	if op, _ := prm.OpcodeOf(in); (op == prm.CmdDisableHCA || op == prm.CmdTeardownHCA || op == prm.CmdEnableHCA) && h.rand.IntN(20) > 0 {
		return nil // the end of all objects, too often
	}
	switch h.rand.IntN(10) {
	case 0: // another command
		prm.SetBits(in, 0, 16, uint64(h.rand.IntN(0xb00)))
	case 1:
		in = h.random(16 + h.rand.IntN(600))
		prm.PutCommand(in, [...]prm.Command{prm.CmdCreateMKey, prm.CmdCreateCQ, prm.CmdCreateQP, prm.CmdCreatePSV, prm.CmdCreateObject, prm.CmdCreateUmem, prm.CmdInit2RTRQP, prm.CmdRst2InitQP, prm.CmdRTR2RTSQP, prm.CmdSetFlowEntry}[h.rand.IntN(10)], uint16(h.rand.IntN(4)))
	case 2, 3, 4, 5: // an object of ours
		prm.PutNumber(in, h.numbers[h.rand.IntN(len(h.numbers))])
	case 6:
		in, outLen = h.unrecorded(), 0x110
	}
	h.mutate(in[2:])
	switch h.rand.IntN(16) {
	case 0:
		in = in[:8+h.rand.IntN(len(in)-7)]
	case 1:
		in = append(in, make([]byte, 1<<h.rand.IntN(18))...)
	case 2:
		outLen = 8 + h.rand.IntN(1<<h.rand.IntN(16))
	}
	out, err := h.m.exec(in, outLen)
	switch {
	case errors.Is(err, errUnhealthy): // the command has moved memory away that it needs
		return h.again()
	case err != nil:
		return err
	}
	if out[0] == 0 && len(out) >= 12 && len(h.numbers) < 4096 {
		h.numbers = append(h.numbers, prm.NumberOf(append(out, 0, 0, 0, 0)))
	}
	return nil
}

// unrecorded returns a command that the recorded boot does not have: of multicast groups, or of
// shared receive queues.
func (h *hostile) unrecorded() (in []byte) {
	number := h.numbers[h.rand.IntN(len(h.numbers))]
	op := [...]prm.Command{prm.CmdAttachMCG, prm.CmdAttachMCG, prm.CmdDetachMCG, prm.CmdModifyRMP, prm.CmdQueryRMP, prm.CmdArmXRCSRQ, prm.CmdQueryXRCSRQ}[h.rand.IntN(7)]
	switch op {
	case prm.CmdAttachMCG, prm.CmdDetachMCG:
		in = command(op, 0x20)
		copy(in[0x10:], []byte{10: 0xff, 11: 0xff, 12: 239, 14: byte(h.rand.IntN(8)), 15: byte(h.rand.Uint32())})
		if h.rand.IntN(4) > 0 {
			number = h.queues[4].number // of UD
		}
	case prm.CmdModifyRMP:
		in = command(op, 0x110)
		prm.SetBits(in, 0xbf, 1, 1)
		prm.SetBits(in, 0x2b0, 16, uint64(h.rand.IntN(4)))
	default:
		in = command(op, 16)
		prm.SetBits(in, 0x70, 16, uint64(h.rand.IntN(4)))
	}
	prm.PutNumber(in, number)
	return in
}

// again begins anew after a fatal error.
func (h *hostile) again() error {
	h.count["fatal errors"]++
	if err := h.check(); err != nil {
		return err
	}
	return h.reset()
}

// request puts a request into a send queue.
func (h *hostile) request() error {
	q := h.queues[h.rand.IntN(len(h.queues))]
	h.tame = h.rand.IntN(4) > 0
	defer func() { h.tame = false }()
	ops := [...]prm.Opcode{prm.OpNop, prm.OpSendInv, prm.OpWrite, prm.OpWriteImm, prm.OpSend, prm.OpSendImm, prm.OpRead, prm.OpCmpSwap, prm.OpFetchAdd, prm.OpSetPSV, prm.OpUMR, prm.OpUMR, prm.OpUMR, prm.OpMMO, prm.OpLSO, prm.Opcode(h.rand.Uint32())}
	op := ops[h.rand.IntN(len(ops))]
	if h.tame {
		op = ops[h.rand.IntN(len(ops)-3)]
	}
	w := make([]byte, 16, 512)
	be.PutUint32(w, q.head&0xffff<<8|uint32(op))
	w[11] = [...]byte{prm.FlagCQUpdate, 0, byte(h.rand.Uint32())}[h.rand.IntN(3)]
	be.PutUint32(w[12:], h.key())
	switch op {
	case prm.OpUMR:
		if h.rand.IntN(8) > 0 {
			be.PutUint32(w[12:], h.layouts[h.rand.IntN(len(h.layouts))]<<8|h.rand.Uint32()&7)
		}
		control := make([]byte, 48)
		entries, attributes := h.rand.IntN(8), h.rand.IntN(2)
		control[0] = 0x80
		be.PutUint16(control[4:], uint16(entries+3)&^3)
		be.PutUint16(control[6:], uint16(4*attributes))
		be.PutUint64(control[8:], [...]uint64{0x209e2143, 0x209e3343, 0x20000000, 0x20000080, 0x203e20c3}[h.rand.IntN(5)])
		if !h.tame {
			h.mutate(control)
		}
		context := make([]byte, 64)
		context[2] = byte(h.rand.Uint32())
		be.PutUint32(context[4:], 0xffffff00|h.rand.Uint32()&7)
		be.PutUint32(context[12:], h.queues[0].pd|uint32(h.rand.IntN(2))<<30)
		be.PutUint64(context[16:], h.address())
		be.PutUint64(context[24:], uint64(h.length()))
		context[59] = byte(12 + h.rand.IntN(10))
		w = append(append(w, control...), context...)
		kind := h.rand.IntN(3)
		for i := range entries {
			switch {
			case kind == 0: // pages
				w = be.AppendUint64(be.AppendUint64(w, h.address()), h.address())
			case kind == 1 && i == 0: // the head of a strided list
				w = be.AppendUint64(be.AppendUint64(w, 0x208<<32|0x400), uint64(h.rand.IntN(20))<<32|uint64(entries-1))
			case kind == 1:
				w = be.AppendUint64(be.AppendUint64(w, [...]uint64{0x02000200 << 32, 0x00080008 << 32}[i&1]|uint64(h.key())), h.address())
			default:
				w = append(w, data(h.length(), h.key(), h.address())...)
			}
		}
		w = append(w, make([]byte, -len(w)&63)...)
		if attributes == 1 {
			bsf := make([]byte, 64)
			copy(bsf, []byte{0x90, 0xcf, 0xff, 1})
			be.PutUint32(bsf[4:], h.length())
			for i := range 2 {
				be.PutUint32(bsf[8+4*i:], h.psvs[h.rand.IntN(len(h.psvs))])
				copy(bsf[32+16*i:], []byte{0xc0, 0, 0, 0, 0, 0, 0, 0x60, byte(1 + h.rand.IntN(2)), 0x80, 0, 0, 0, 0x43})
			}
			if !h.tame {
				h.mutate(bsf)
			}
			w = append(w, bsf...)
		}
	case prm.OpRead, prm.OpWrite, prm.OpWriteImm, prm.OpCmpSwap, prm.OpFetchAdd:
		w = append(w, remote(h.address(), h.key())...)
	case prm.OpSetPSV:
		w = append(w, remote(uint64(h.psvs[h.rand.IntN(len(h.psvs))])<<32, h.rand.Uint32())...)
	}
	if q == h.queues[4] { // datagrams have an address vector
		w = append(w, make([]byte, 48)...)
		to := w[len(w)-48:]
		be.PutUint32(to[8:], 1<<31|h.word()&0xffffff)
		copy(to[20:], peerMAC[:])
		be.PutUint32(to[28:], 1<<30|ownAddress<<20)
		to[27] = 64
		gid := [...][16]byte{guestIP, peerIP}[h.rand.IntN(2)]
		copy(to[32:], gid[:])
	}
	for range h.rand.IntN(5) {
		w = append(w, data(h.length(), h.key(), h.address())...)
	}
	be.PutUint32(w[4:], q.number<<8|uint32(len(w)/16)&63)
	if !h.tame {
		h.mutate(w)
	}
	at := uint64(recvBytes)
	if q == h.queues[5] {
		at = 0
	}
	ring := h.m.at(q.ring + at)[:blocks*64]
	for i := 0; i < len(w); i += 64 {
		copy(ring[q.head%blocks*64:][:64], w[i:])
		q.head++
	}
	head := q.head
	if !h.tame && h.rand.IntN(4) == 0 {
		head = h.word()
	}
	be.PutUint32(h.m.at(q.record+4), head&0xffff)
	be.PutUint32(h.m.at(q.cqRecord), h.rand.Uint32()&0xffffff)
	// A queue that has failed comes back.
	if h.rand.IntN(4) == 0 {
		if err := q.move(prm.CmdToRstQP, prm.QPContext{}); err == nil {
			q.head = 0
			if h.rand.IntN(2) == 0 {
				q.connect(h.queues[h.rand.IntN(3)].number, guestIP, guestMAC)
			} else {
				q.connect(h.word()&0xffffff, peerIP, peerMAC)
			}
		} else if errors.Is(err, errUnhealthy) {
			return h.again()
		}
	}
	return h.m.write(anyUAR*4096+prm.UARBlue, w[:8])
}

// doorbell writes to a register of doorbells.
func (h *hostile) doorbell() error {
	off := uint64(16+h.rand.IntN(16))*4096 + [...]uint64{0x20, 0x40, 0x48, 0x800, 0x900, 0xa00, uint64(h.rand.IntN(4096))}[h.rand.IntN(7)]
	number := h.word() & 0xffffff
	b := be.AppendUint32(be.AppendUint32(nil, h.rand.Uint32()), [...]uint32{number << 8, number, h.rand.Uint32()}[h.rand.IntN(3)])
	return h.m.write(off, b[:[...]int{8, 8, 4}[h.rand.IntN(3)]])
}

// poke changes the guest's memory: its queues above all.
func (h *hostile) poke() error {
	addr := h.address()
	if addr < driverAt || addr >= driverAt+driverSize-512 {
		addr = h.queues[h.rand.IntN(len(h.queues))].ring + uint64(h.rand.IntN(4096))
	}
	b := h.m.at(addr)[:64+h.rand.IntN(400)]
	if h.rand.IntN(3) == 0 {
		copy(b, h.random(len(b)))
	}
	h.mutate(b)
	return nil
}

// access reads and writes registers and the configuration space.
func (h *hostile) access() error {
	n := [...]int{1, 2, 4, 8, h.rand.IntN(1 << 16)}[h.rand.IntN(5)]
	off, where := uint64(h.rand.IntN(0x2000)), bar0
	switch h.rand.IntN(4) {
	case 0:
		off = uint64(h.rand.IntN(32 << 20))
	case 1:
		off, where, n = uint64(h.rand.IntN(4096)), configuration, min(n, 4096)
	case 2:
		off, where = h.rand.Uint64(), int(h.rand.Uint32())
	}
	command, b := uint16(msgRegionRead), []byte(nil)
	if h.rand.IntN(2) == 0 {
		command, b = msgRegionWrite, h.random(n)
	}
	if _, err := h.m.call(command, region(off, where, n, b)); err != nil {
		return h.answered(err)
	}
	// The driver's registers are as they were, so that commands go on.
	return h.m.queue()
}

// answered returns nil for an answer with an error, which is as good as one without.
func (h *hostile) answered(err error) error {
	var r refused
	if errors.As(err, &r) {
		return nil
	}
	return err
}

// message sends a mutated vfio-user message, whose size is right.
func (h *hostile) message() error {
	b := make([]byte, h.rand.IntN(64))
	for i := range b {
		b[i] = h.sparse()
	}
	var fds []int
	for range h.rand.IntN(3) {
		fds = append(fds, h.m.file)
	}
	op := uint16(h.rand.IntN(16))
	switch {
	case op == msgReset:
		return nil
	case op == msgDMAUnmap && len(b) >= 24 && (b[4]&2 != 0 || le.Uint64(b[8:]) <= unreachable): // the guest still needs its memory
		return nil
	case op == msgDMAMap && len(b) >= 32: // of the guest's own bytes, and not where remap maps
		le.PutUint64(b[8:], uint64(fileLow))
		b[16+5] |= 1
		le.PutUint64(b[24:], le.Uint64(b[24:])%lowMemory)
	case op == msgSetIRQs:
		fds = nil // writing events to the memory's file is the monitor's wish, not the guest's
	}
	_, err := h.m.call(op, b, fds...)
	return h.answered(err)
}

// frame gives the adapter a frame of the network.
func (h *hostile) frame() error {
	var b []byte
	h.wires.mu.Lock()
	if n := len(h.wires.seen); n > 0 && h.rand.IntN(2) == 0 {
		b = bytes.Clone(h.wires.seen[h.rand.IntN(n)])
	}
	h.wires.mu.Unlock()
	if h.rand.IntN(8) == 0 {
		b = h.random(h.rand.IntN(9500))
		copy(b, guestMAC[:])
	} else {
		if b == nil {
			b = h.packet()
		} else if len(b) > 60 && h.rand.IntN(2) == 0 { // as if it were the answer
			b = bytes.Clone(b)
			copy(b[0:], guestMAC[:])
			copy(b[26:34], append(bytes.Clone(b[30:34]), b[26:30]...))
			be.PutUint32(b[46:], h.word()&0xffffff)
		}
		if len(b) > 42 && h.rand.IntN(2) == 0 {
			h.mutate(b[42:])
		}
		if h.rand.IntN(8) == 0 {
			h.mutate(b)
		}
		if h.rand.IntN(8) > 0 {
			seal(b)
		}
	}
	inject(h.wires.bad, b)
	return nil
}

// packet makes a RoCEv2 frame to one of the guest's QPs.
func (h *hostile) packet() []byte {
	b := append(append(bytes.Clone(guestMAC[:]), peerMAC[:]...), 8, 0)
	payload := make([]byte, 12+h.rand.IntN(1100)&^3)
	for i := range payload[12:] {
		payload[12+i] = h.sparse()
	}
	payload[0] = [...]byte{byte(h.rand.IntN(24)), 0x20 + byte(h.rand.IntN(12)), 0x64, byte(h.rand.Uint32())}[h.rand.IntN(4)]
	payload[2], payload[3] = 0xff, 0xff
	be.PutUint32(payload[4:], h.word()&0xffffff)
	be.PutUint32(payload[8:], uint32(h.rand.IntN(2))<<31|uint32(7+h.rand.IntN(8)))
	if len(payload) >= 28 && h.rand.IntN(2) == 0 { // RETH
		copy(payload[12:], be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, h.address()), h.key()), h.length()))
	}
	size := 20 + 8 + len(payload) + 4
	b = append(b, 0x45, 0, byte(size>>8), byte(size), 0, 0, 0x40, 0, 64, 17, 0, 0)
	b = append(append(b, peerIP[12:]...), guestIP[12:]...)
	b = append(b, 0xc0, 0, 4791>>8, 4791&255, byte((size-20)>>8), byte(size-20), 0, 0)
	return append(append(b, payload...), 0, 0, 0, 0)
}

// seal computes the checksum of an IPv4 header and the ICRC of a RoCEv2 packet.
func seal(frame []byte) {
	const ip = 14
	if len(frame) < ip+20+8+12+4 || frame[ip] != 0x45 {
		return
	}
	frame[ip+10], frame[ip+11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(be.Uint16(frame[ip+i:]))
	}
	sum = sum&0xffff + sum>>16
	be.PutUint16(frame[ip+10:], ^uint16(sum&0xffff+sum>>16))
	size := int(be.Uint16(frame[ip+2:]))
	if size < 20+8+12+4 || size > len(frame)-ip {
		return
	}
	packet := frame[ip : ip+size]
	b := append(bytes.Repeat([]byte{0xff}, 8), packet[:size-4]...)
	for _, i := range []int{1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4} { // fields that routers change count as ones
		b[8+i] = 0xff
	}
	le.PutUint32(packet[size-4:], crc32.ChecksumIEEE(b))
}

// remap takes a range of memory away, or gives it back.
func (h *hostile) remap() error {
	if !h.passing {
		h.passing = true
		return h.m.mapping(passingAt, partSize, filePassing, 3, h.m.file)
	}
	h.passing = false
	err := h.m.unmap(passingAt, partSize)
	h.left = bytes.Clone(h.m.all[filePassing : filePassing+partSize])
	return err
}

// flood makes one kind of object until the adapter refuses or there are many.
func (h *hostile) flood() error {
	most := 20
	if *hostileTime > 0 {
		most = 1 << h.rand.IntN(14)
	}
	var in []byte
	switch pd := h.queues[0].pd; h.rand.IntN(6) {
	case 0: // with a list whose pages do not follow one another
		in = command(prm.CmdCreateCQ, 0x110+8<<h.rand.IntN(17))
		prm.CQContext{LogSize: uint8(h.rand.IntN(22)), UAR: anyUAR, EQN: 1, DBAddr: driverRoom}.Put(in)
		for at := 0x110; at+8 <= len(in); at += 8 {
			be.PutUint64(in[at:], uint64(at*8192)&0xffff000)
		}
		most = min(most, 64)
	case 1:
		in = command(prm.CmdCreateQP, 0x120)
		prm.PutQP(in, &prm.QPContext{PD: pd, UAR: anyUAR, UserIndex: 0xffffff, SendCQ: h.queues[0].cqn, RecvCQ: h.queues[0].cqn, LogSQSize: 4, LogRQSize: 4, LogRQStride: 2, DBAddr: driverRoom})
		be.PutUint64(in[0x110:], driverRoom)
	case 2:
		in = command(prm.CmdCreateMKey, 272)
		for _, f := range [][3]uint64{{0x01, 1, 1}, {0x10, 1, 1}, {0x16, 2, 1}, {0x20, 24, 0xffffff}, {0x68, 24, uint64(pd)}, {0x1a0, 32, 1 << 16}} {
			prm.SetBits(in, 0x80+int(f[0]), int(f[1]), f[2])
		}
	case 3:
		in = fourPSVs(pd)
	case 4:
		in = command([...]prm.Command{prm.CmdAllocPD, prm.CmdAllocXRCD, prm.CmdAllocDomain, prm.CmdAllocUAR, prm.CmdAllocQCounter}[h.rand.IntN(5)], 16)
	default:
		in = bytes.Clone(h.record[h.rand.IntN(len(h.record))].In)
	}
	for range most {
		out, err := h.m.exec(in, 0x20)
		if errors.Is(err, errUnhealthy) {
			return h.again()
		}
		if err != nil {
			return err
		}
		if out[0] != 0 {
			break
		}
		h.count["objects of floods"]++
	}
	h.most = max(h.most, h.server.anonymous())
	return nil
}

// silence takes bus mastering away, or the command queue by a reset, and rings doorbells and sends
// frames nevertheless. The adapter does not touch the memory.
func (h *hostile) silence() error {
	reset := h.rand.IntN(4) == 0
	if reset {
		if _, err := h.m.call(msgReset, nil); err != nil {
			return err
		}
	}
	if err := h.m.master(reset); err != nil {
		return err
	}
	parts := [][]byte{h.m.all[fileLow : fileLow+partSize], h.m.all[fileDriver : fileDriver+driverSize]}
	sums := []uint32{crc32.ChecksumIEEE(parts[0]), crc32.ChecksumIEEE(parts[1])}
	for range 1 + h.rand.IntN(8) {
		if err := errors.Join(h.m.write32(regDoorbell, h.rand.Uint32()), h.doorbell(), h.frame()); err != nil {
			return err
		}
	}
	if _, err := h.m.read32(regHealth); err != nil { // what was written before is done then
		return err
	}
	for i, part := range parts {
		if crc32.ChecksumIEEE(part) != sums[i] {
			return fmt.Errorf("the adapter wrote to part %d of the memory without leave; reset: %t", i, reset)
		}
	}
	if reset {
		return h.reset()
	}
	return h.m.queue()
}

// reset resets the adapter, and begins anew.
func (h *hostile) reset() error {
	if !h.passing {
		if err := h.remap(); err != nil {
			return err
		}
	}
	return h.prepare()
}
