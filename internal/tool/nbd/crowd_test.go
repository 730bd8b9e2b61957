package nbd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// transmissionFlags goes through a handshake and returns the flags of the export.
func (c *client) transmissionFlags(structured bool) (flags uint16) {
	c.t.Helper()
	c.hello()
	if structured {
		c.option(optStructuredReply, nil)
		c.reply()
	}
	c.option(optInfo, make([]byte, 6))
	for {
		switch kind, data := c.reply(); {
		case kind == repAck:
			return flags
		case kind == repInfo && binary.BigEndian.Uint16(data) == infoExport:
			flags = binary.BigEndian.Uint16(data[10:])
		}
	}
}

// TestFlags: the protocol allows NBD_FLAG_SEND_DF only after structured replies were negotiated.
func TestFlags(t *testing.T) {
	dial := start(t, &disk{b: make([]byte, 4096), bad: -1}, Options{})
	if flags := dial().transmissionFlags(false); flags&sendDF != 0 {
		t.Errorf("simple replies: flags %#x", flags)
	}
	if flags := dial().transmissionFlags(true); flags&sendDF == 0 {
		t.Errorf("structured replies: flags %#x", flags)
	}
}

// TestCrowd connects maxConnections clients, all of which are served. Further ones are told that they
// are refused, and one of them is served when another has left.
func TestCrowd(t *testing.T) {
	var mu sync.Mutex
	var failed []error
	dial := start(t, &disk{b: make([]byte, 4096), bad: -1}, Options{Failed: func(_ net.Addr, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, err)
	}})
	var crowd []*client
	for range maxConnections {
		crowd = append(crowd, dial().begin(false))
	}
	for i, c := range crowd {
		c.request(0, cmdRead, uint64(i), 0, 512, nil)
		c.simple(uint64(i), 512)
	}
	refused := dial()
	refused.hello()
	for _, option := range []uint32{optStructuredReply, optGo} {
		refused.option(option, make([]byte, 6))
		if kind, data := refused.reply(); kind != repErrPolicy || string(data) != errFull.Error() {
			t.Errorf("%#x %q", kind, data)
		}
	}
	if _, err := refused.Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection that was refused: %v", err)
	}
	old := dial() // asks by the older option, which has no errors
	old.hello()
	old.option(optExportName, nil)
	if _, err := old.Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection that was refused: %v", err)
	}
	crowd[7].request(0, cmdDisconnect, 0, 0, 0, nil)
	if _, err := crowd[7].Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	for { // the server counts a client until its connection is closed
		c := dial()
		c.hello()
		c.option(optInfo, make([]byte, 6))
		if kind, _ := c.reply(); kind == repInfo {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(failed) < 2 || !errors.Is(failed[0], errFull) || !errors.Is(failed[1], errFull) {
		t.Errorf("reported: %v", failed)
	}
}

// TestStopDeaf ends a server whose client sends requests and takes no reply. The server ends while the
// client is still connected.
func TestStopDeaf(t *testing.T) {
	t.Parallel()
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, &disk{b: make([]byte, 8<<20), bad: -1}, Options{}, l) }()
	c := connect(t, l).begin(false)
	for i := range 4 {
		c.request(0, cmdRead, uint64(i), 0, 8<<20, nil)
	}
	c.read(1 << 20) // the server is sending
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience / 2):
		t.Error("the server waits for the client")
		c.Close()
		<-ended
	}
}

// TestListeners serves clients of two listeners. The error of one of them ends both.
func TestListeners(t *testing.T) {
	listeners := []net.Listener{listen(t), listen(t)}
	ended := make(chan error)
	go func() { ended <- Serve(t.Context(), &disk{b: make([]byte, 4096), bad: -1}, Options{}, listeners...) }()
	for _, l := range listeners {
		c := connect(t, l).begin(false)
		c.request(0, cmdRead, 1, 0, 512, nil)
		c.simple(1, 512)
	}
	listeners[0].Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := listeners[1].Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the other listener: %v", err)
	}
}

// pipes is a listener whose connections are in memory, for tests with a clock of their own.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l pipes) Close() error   { close(l); return nil }
func (l pipes) Addr() net.Addr { return nil }

// counting is a device of zeros that counts the bytes of reads.
type counting struct {
	Device
	bytes atomic.Int64
}

func (d *counting) Size() int64 { return maxRequest }
func (d *counting) ReadAt(p []byte, _ int64) (int, error) {
	d.bytes.Add(int64(len(p)))
	return len(p), nil
}

// TestDeaf has more clients that do not take their replies than there is memory for all of them. A client with
// a small request does not wait for them. One with a large request waits until they have lost their connections, which
// they keep while nobody waits.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d, l := new(counting), make(pipes)
		ended := make(chan error)
		go func() { ended <- Serve(ctx, d, Options{}, l) }()
		dial := func() *client {
			a, b := net.Pipe()
			t.Cleanup(func() { a.Close() })
			l <- b
			return (&client{t, a}).begin(false)
		}
		const large = maxRequest - 1000 // occupies a buffer of maxRequest
		var deaf []*client
		for range 4 {
			c := dial()
			c.request(0, cmdRead, 1, 0, large, nil)
			deaf = append(deaf, c)
		}
		time.Sleep(10 * patience)
		for _, c := range deaf {
			c.simple(1, large)
			c.request(0, cmdRead, 1, 0, large, nil)
		}
		d.bytes.Store(0)
		for range 8 {
			c := dial()
			c.request(0, cmdRead, 1, 0, large, nil)
			deaf = append(deaf, c)
		}
		synctest.Wait()
		if n := d.bytes.Load(); n > maxShared+int64(len(deaf))*ownHeld {
			t.Errorf("%d clients hold %d bytes", len(deaf), n)
		}
		c := dial()
		began := time.Now()
		c.request(0, cmdRead, 1, 0, ownHeld, nil)
		c.simple(1, ownHeld)
		if !time.Now().Equal(began) {
			t.Error("a small request waits for clients that do not take their replies")
		}
		c.request(0, cmdRead, 2, 0, large, nil)
		c.simple(2, large)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
