package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

// disk is a device in memory. Reading the byte at offset bad fails.
type disk struct {
	mu      sync.Mutex
	b       []byte
	bad     int64 // -1: none
	flushes int
}

func (d *disk) Size() int64 { return int64(len(d.b)) }

func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := bytes.NewReader(d.b).ReadAt(p, off)
	if d.bad >= off && d.bad < off+int64(len(p)) {
		return int(d.bad - off), errors.New("a bad block")
	}
	return n, err
}

func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off == 4242 {
		return 0, failure.New("write", syscall.ENOSPC, "no room")
	}
	return copy(d.b[off:], p), nil
}

func (d *disk) Zero(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.b[off : off+n])
	return nil
}

func (d *disk) Trim(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.b[off:off+n], bytes.Repeat([]byte{0xD5}, int(n)))
	return nil
}

func (d *disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	return nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	fatal.If(t, err)
	return l
}

// connect returns a client whose connection ends with the test.
func connect(t *testing.T, l net.Listener) *client {
	t.Helper()
	c, err := net.Dial("unix", l.Addr().String())
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t, c}
}

// start serves a device until the test ends and returns a function that connects.
func start(t *testing.T, d Device, o Options) (dial func() *client) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, d, o, l) }()
	stop := errors.New("the test has ended")
	t.Cleanup(func() {
		cancel(stop)
		if err := <-ended; err != stop {
			t.Errorf("Serve: %v", err)
		}
	})
	return func() *client { return connect(t, l) }
}

// failing is a listener that accepts one connection and then fails.
type failing struct {
	net.Listener
	accepted bool
}

var errListener = errors.New("the listener has failed")

func (l *failing) Accept() (net.Conn, error) {
	if l.accepted {
		return nil, errListener
	}
	l.accepted = true
	return l.Listener.Accept()
}

// TestListenerFails has an idle client while the listener fails. The server must not wait for the
// client.
func TestListenerFails(t *testing.T) {
	l := listen(t)
	connect(t, l)
	if err := Serve(t.Context(), &disk{b: make([]byte, 4096)}, Options{}, &failing{Listener: l}); err != errListener {
		t.Errorf("Serve: %v", err)
	}
}

// client speaks the protocol by hand.
type client struct {
	t *testing.T
	net.Conn
}

func (c *client) read(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) put(vs ...any) {
	var b bytes.Buffer
	for _, v := range vs {
		_ = binary.Write(&b, binary.BigEndian, v)
	}
	_, _ = c.Write(b.Bytes()) // the server may hang up
}

// hello does the first part of the handshake.
func (c *client) hello() {
	c.t.Helper()
	if b := c.read(18); string(b[:16]) != "NBDMAGICIHAVEOPT" || binary.BigEndian.Uint16(b[16:]) != 3 {
		c.t.Fatalf("%x", b)
	}
	c.put(uint32(3))
}

func (c *client) option(option uint32, data []byte) {
	c.put(uint64(magicOption), option, uint32(len(data)), data)
}

// reply reads a reply to an option.
func (c *client) reply() (kind uint32, data []byte) {
	c.t.Helper()
	b := c.read(20)
	if binary.BigEndian.Uint64(b) != magicReply {
		c.t.Fatalf("%x", b)
	}
	return binary.BigEndian.Uint32(b[12:]), c.read(int(binary.BigEndian.Uint32(b[16:])))
}

// begin goes on to requests.
func (c *client) begin(structured bool) *client {
	c.t.Helper()
	c.hello()
	if structured {
		c.option(optStructuredReply, nil)
		c.reply()
	}
	c.option(optGo, make([]byte, 6))
	for {
		kind, data := c.reply()
		switch kind {
		case repInfo:
			continue
		case repAck:
			return c
		}
		c.t.Fatalf("%#x %q", kind, data)
	}
}

func (c *client) request(flags, command uint16, cookie, offset uint64, length uint32, data []byte) {
	c.put(uint32(magicRequest), flags, command, cookie, offset, length, data)
}

// simple reads a simple reply with n bytes of data.
func (c *client) simple(cookie uint64, n int) (errno uint32, data []byte) {
	c.t.Helper()
	b := c.read(16)
	if binary.BigEndian.Uint32(b) != magicSimple || binary.BigEndian.Uint64(b[8:]) != cookie {
		c.t.Fatalf("%x", b)
	}
	if errno = binary.BigEndian.Uint32(b[4:]); errno == 0 {
		data = c.read(n)
	}
	return errno, data
}

// chunk reads a chunk of a structured reply.
func (c *client) chunk(cookie uint64) (flags, kind uint16, data []byte) {
	c.t.Helper()
	b := c.read(20)
	if binary.BigEndian.Uint32(b) != magicChunk || binary.BigEndian.Uint64(b[8:]) != cookie {
		c.t.Fatalf("%x", b)
	}
	return binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:]), c.read(int(binary.BigEndian.Uint32(b[16:])))
}

func TestSimple(t *testing.T) {
	d := &disk{b: bytes.Repeat([]byte{7}, 10_000), bad: 9000}
	c := start(t, d, Options{Zeroes: true})().begin(false)
	c.request(0, cmdWrite, 1, 100, 5, []byte("hello"))
	if errno, _ := c.simple(1, 0); errno != 0 {
		t.Error(errno)
	}
	c.request(0, cmdRead, 2, 99, 7, nil)
	if errno, data := c.simple(2, 7); errno != 0 || string(data) != "\x07hello\x07" {
		t.Error(errno, data)
	}
	for i, test := range []struct {
		flags, command uint16
		offset         uint64
		length         uint32
		want           uint32
	}{
		{cmdFlagFUA, cmdWriteZeroes, 101, 2, 0},
		{0, cmdTrim, 50, 10, 0},
		{cmdFlagNoHole, cmdWriteZeroes, 0, 10, 0},
		{0, cmdFlush, 0, 0, 0},
		{0, cmdRead, 8999, 2, eIO},
		{0, cmdRead, 10_000, 1, eINVAL},
		{0, cmdRead, 1 << 63, 1, eINVAL},
		{0, cmdRead, 1<<64 - 1, 2, eINVAL},
		{0, cmdRead, 0, maxRequest + 1, eOVERFLOW},
		{0, cmdTrim, 9999, 2, eINVAL},
		{0, cmdWriteZeroes, 9999, 2, eNOSPC},
		{1 << 9, cmdFlush, 0, 0, eINVAL},
		{cmdFlagDF, cmdRead, 0, 10, eINVAL}, // only with structured replies
		{0, 99, 0, 0, eINVAL},
	} {
		c.request(test.flags, test.command, uint64(i), test.offset, test.length, nil)
		if errno, _ := c.simple(uint64(i), 0); errno != test.want {
			t.Errorf("%+v: error %d", test, errno)
		}
	}
	c.request(0, cmdWrite, 77, 4242, 1, []byte{1})
	if errno, _ := c.simple(77, 0); errno != eNOSPC {
		t.Error(errno)
	}
	if d.flushes != 2 || string(d.b[100:105]) != "h\x00\x00lo" || d.b[9] != 0 || d.b[59] != 0xD5 {
		t.Errorf("%d flushes, %q", d.flushes, d.b[:106])
	}
	c.request(0, cmdDisconnect, 0, 0, 0, nil)
	if _, err := c.Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

// TestStructured: a read of a bad block sends the data before it, and the error with its offset.
func TestStructured(t *testing.T) {
	d := &disk{b: bytes.Repeat([]byte{7}, 10_000), bad: 9000}
	c := start(t, d, Options{ReadOnly: true})().begin(true)
	c.request(0, cmdRead, 5, 8000, 2000, nil)
	if flags, kind, data := c.chunk(5); flags != 0 || kind != chunkOffsetData || binary.BigEndian.Uint64(data) != 8000 || len(data) != 8+1000 {
		t.Errorf("%#x %d, %d bytes", flags, kind, len(data))
	}
	flags, kind, data := c.chunk(5)
	if flags != chunkDone || kind != chunkErrorOffset || binary.BigEndian.Uint32(data) != eIO || string(data[6:17]) != "a bad block" || binary.BigEndian.Uint64(data[17:]) != 9000 {
		t.Errorf("%#x %d %q", flags, kind, data)
	}
	c.request(cmdFlagDF, cmdRead, 6, 8000, 2000, nil)
	if flags, kind, _ := c.chunk(6); flags != chunkDone || kind != chunkErrorOffset {
		t.Errorf("%#x %d", flags, kind)
	}
	c.request(0, cmdRead, 7, 0, 0, nil)
	if flags, kind, data := c.chunk(7); flags != chunkDone || kind != chunkNone || len(data) != 0 {
		t.Errorf("%#x %d", flags, kind)
	}
	c.request(0, cmdWrite, 8, 0, 1, []byte{1})
	if flags, kind, data := c.chunk(8); flags != chunkDone || kind != chunkError || binary.BigEndian.Uint32(data) != ePERM {
		t.Errorf("%#x %d", flags, kind)
	}
}

func TestOptions(t *testing.T) {
	dial := start(t, &disk{b: make([]byte, 999), bad: -1}, Options{})
	c := dial()
	c.hello()
	named := append(binary.BigEndian.AppendUint32(nil, 3), "abc\x00\x00"...)
	for _, test := range []struct {
		option uint32
		data   []byte
		want   []uint32
	}{
		{optList, nil, []uint32{repServer, repAck}},
		{optList, []byte{1}, []uint32{repErrInvalid}},
		{5, nil, []uint32{repErrUnsup}}, // STARTTLS
		{10, []byte("meta"), []uint32{repErrUnsup}},
		{optInfo, nil, []uint32{repErrInvalid}},
		{optInfo, named, []uint32{repErrUnknown}},
		{optGo, []byte{255, 255, 255, 255, 0, 0}, []uint32{repErrInvalid}},
		{optInfo, make([]byte, 6), []uint32{repInfo, repInfo, repAck}},
		{77, make([]byte, maxOption+1), []uint32{repErrTooBig}},
	} {
		c.option(test.option, test.data)
		for _, want := range test.want {
			if kind, _ := c.reply(); kind != want {
				t.Errorf("option %d: %#x, want %#x", test.option, kind, want)
			}
		}
	}
	c.option(optExportName, nil)
	if b := c.read(10); binary.BigEndian.Uint64(b) != 999 || binary.BigEndian.Uint16(b[8:])&sendHasFlags == 0 {
		t.Errorf("%x", b)
	}
	c.request(0, cmdRead, 1, 0, 999, nil)
	if errno, data := c.simple(1, 999); errno != 0 || len(data) != 999 {
		t.Error(errno)
	}
}

// TestHostile sends data that breaks the protocol. The server must close that connection and keep
// serving others.
func TestHostile(t *testing.T) {
	d := &disk{b: make([]byte, 1<<20), bad: -1}
	dial := start(t, d, Options{Zeroes: true})
	good := dial().begin(true)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		c := dial()
		switch i % 6 {
		case 0: // disconnects at once
			c.Close()
			continue
		case 1: // other flags
			c.read(18)
			c.put(uint32(1 << 7))
		case 2: // something else instead of an option
			c.hello()
			c.put(r.Uint64(), r.Uint64())
		case 3: // something else instead of a request
			c.begin(r.IntN(2) == 0)
			c.put(r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
		case 4: // a write that is too long
			c.begin(true)
			c.request(0, cmdWrite, 1, 0, maxRequest+1, nil)
		case 5: // another export
			c.hello()
			c.option(optExportName, []byte("other"))
		}
		if _, err := io.Copy(io.Discard, c.Conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("case %d: %v", i%6, err)
		}
		c.Close()
	}
	good.request(0, cmdRead, 1, 0, 10, nil)
	if _, kind, _ := good.chunk(1); kind != chunkOffsetData {
		t.Error(kind)
	}
}

// TestParallel sends many requests on many connections. The replies may come in any order.
func TestParallel(t *testing.T) {
	d := &disk{b: make([]byte, 1<<20), bad: -1}
	dial := start(t, d, Options{})
	var all sync.WaitGroup
	for n := range 4 {
		c := dial().begin(false)
		all.Go(func() {
			go func() {
				for i := range 100 {
					at := uint64(n)<<18 + uint64(i)*1000
					c.request(0, cmdWrite, at, at, 1000, bytes.Repeat([]byte{byte(n + 1)}, 1000))
				}
			}()
			for range 100 {
				b := make([]byte, 16)
				if _, err := io.ReadFull(c.Conn, b); err != nil || binary.BigEndian.Uint32(b[4:]) != 0 {
					t.Error(err, b)
					return
				}
			}
		})
	}
	all.Wait()
	for n := range 4 {
		if !bytes.Equal(d.b[n<<18:][:100_000], bytes.Repeat([]byte{byte(n + 1)}, 100_000)) {
			t.Errorf("connection %d: the data differ", n)
		}
	}
}
