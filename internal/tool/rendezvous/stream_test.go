package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/verbs"
)

// unacknowledged is a network on which the acknowledgements of one side are lost while lose is set.
type unacknowledged struct {
	packetconn.Conn
	lose *atomic.Bool
}

func (c unacknowledged) Send(trains []packetconn.Train) (int, error) {
	const acknowledge = 0x11 // the opcode, the first byte of a packet
	for i := range trains {
		if c.lose.Load() && trains[i].Buf[0] == acknowledge {
			continue
		}
		if _, err := c.Conn.Send(trains[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(trains), nil
}

// inBubble runs a test in virtual time with three devices.
func inBubble(t *testing.T, f func(t *testing.T, a, b, c *verbs.Device)) {
	inLossyBubble(t, new(atomic.Bool), f)
}

// inLossyBubble is inBubble with a network that loses the acknowledgements of b while lose is set.
func inLossyBubble(t *testing.T, lose *atomic.Bool, f func(t *testing.T, a, b, c *verbs.Device)) {
	synctest.Test(t, func(t *testing.T) {
		network := inproc.NewNetwork(nil)
		var devs [3]*verbs.Device
		for i, addr := range []string{"192.0.2.1:4791", "192.0.2.2:4791", "192.0.2.3:4791"} {
			conn, err := network.Listen(netip.MustParseAddrPort(addr))
			fatal.If(t, err)
			var c packetconn.Conn = conn
			if i == 1 {
				c = unacknowledged{conn, lose}
			}
			if devs[i], err = verbs.Open(conn.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: c}); err != nil {
				t.Fatal(err)
			}
		}
		f(t, devs[0], devs[1], devs[2])
		time.Sleep(time.Hour) // in virtual time: ends the time wait of the connections
		for _, d := range devs {
			if err := d.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// streams connects a to b.
func streams(t *testing.T, a, b *verbs.Device) (here, there *jsonline.Conn) {
	t.Helper()
	l, err := ListenCM(b, 0)
	fatal.If(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		_, connect, err := l.l.accept()
		if err != nil {
			t.Error(err)
			return
		}
		c, err := connect(t.Context())
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if here, err = DialCM(t.Context(), a, l.Addr().String(), 0); err != nil {
		t.Fatal(err)
	}
	return here, jsonline.New(<-accepted)
}

// TestStream sends more than the receive requests hold, both ways at once.
func TestStream(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b, _ *verbs.Device) {
		here, there := streams(t, a, b)
		if LocalAddr(here) != a.Addr() || LocalAddr(there) != b.Addr() {
			t.Errorf("addresses %v and %v", here.LocalAddr(), there.LocalAddr())
		}
		if err := CheckDevice(there, a.Addr(), netip.Addr{}); err != nil {
			t.Error(err)
		}
		if CheckDevice(there, netip.MustParseAddr("192.0.2.9"), netip.Addr{}) == nil {
			t.Error("a device that the connection does not come from is believed")
		}
		data := make([]byte, 3*streamRecvs*streamMessage+77)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		sent := make(chan error, 2)
		for _, c := range []net.Conn{here, there} {
			go func() {
				_, err := c.Write(data)
				sent <- err
			}()
		}
		got := make([]byte, len(data))
		for _, c := range []net.Conn{there, here} {
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %v, equal %v", err, bytes.Equal(got, data))
			}
		}
		if err := errors.Join(<-sent, <-sent); err != nil {
			t.Error(err)
		}
		gone := there.Gone()
		time.Sleep(10 * keepAlive)
		select {
		case <-gone:
			t.Error("the connection ended by itself")
		default:
		}
		here.Close()
		<-gone
		if _, err := here.Read(got); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading a closed stream: %v", err)
		}
		there.Close()
		if _, err := there.Write(got); err == nil {
			t.Error("a closed stream was written to")
		}
	})
}

// TestStreamDeadline changes the deadline of a Read that waits.
func TestStreamDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b, _ *verbs.Device) {
		here, there := streams(t, a, b)
		defer here.Close()
		defer there.Close()
		var got line
		here.Timeout = time.Second
		if err := here.Hear(t.Context(), &got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a peer that is silent: %v", err)
		}
		why := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
		if err := here.Hear(ctx, &got); !errors.Is(err, why) {
			t.Errorf("stopped: %v", err)
		}
		go there.Tell(t.Context(), line{"after that"})
		if err := here.Hear(t.Context(), &got); err != nil || got.Text != "after that" {
			t.Errorf("%q, %v", got.Text, err)
		}
	})
}

// TestStreamVanished closes the peer's device without disconnecting.
func TestStreamVanished(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b, _ *verbs.Device) {
		here, there := streams(t, a, b)
		gone := here.Gone()
		fatal.If(t, engine.PortOf(b).Close())
		<-gone
		here.Close()
		there.Close()
	})
}

// TestStreamGoodbye lets a peer take a message, refuse it and disconnect, while its
// acknowledgement is lost. The other side must hear the reason.
func TestStreamGoodbye(t *testing.T) {
	var lose atomic.Bool
	inLossyBubble(t, &lose, func(t *testing.T, a, b, _ *verbs.Device) {
		here, there := streams(t, a, b)
		defer here.Close()
		refused := make(chan error, 1)
		go func() {
			var got line
			refused <- errors.Join(there.Tell(t.Context(), line{"not you"}), there.Hear(t.Context(), &got), there.Close())
		}()
		lose.Store(true)
		var got line
		if err := errors.Join(here.Tell(t.Context(), line{"hello"}), here.Hear(t.Context(), &got)); err != nil || got.Text != "not you" {
			t.Errorf("heard %q, %v", got.Text, err)
		}
		if err := <-refused; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := here.Tell(t.Context(), line{"are you there?"}); err == nil {
			t.Error("a stream that the peer has closed was written to")
		}
		if err := here.Hear(t.Context(), &got); !errors.Is(err, jsonline.ErrHungUp) {
			t.Errorf("after the goodbye: %v", err)
		}
	})
}

// TestDialCM connects to a port of a device on which nobody listens.
func TestDialCM(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b, _ *verbs.Device) {
		l, err := ListenCM(b, 0) // a device answers requests only while it has some listener
		fatal.If(t, err)
		if _, err := DialCM(t.Context(), a, netip.AddrPortFrom(b.Addr(), l.Addr().Port()+1).String(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody there: %v", err)
		}
		l.Close()
	})
}
