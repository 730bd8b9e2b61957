package link

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/roce/netem"
)

// newLink makes a link, or skips the test of a user who may not.
func newLink(t *testing.T, l netem.Link) *Link {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: namespaces and TUN devices need root")
	}
	k, err := New(1500, l, 1)
	check(t, err)
	return k
}

// check ends a test with an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Datagrams of ordinary sockets experience the delay and the losses of the model.
func TestDatagrams(t *testing.T) {
	const delay, sent = 5 * time.Millisecond, 200
	k := newLink(t, netem.Link{Delay: delay, Loss: 0.5})
	open := func(h *Host) (c *net.UDPConn) {
		err := h.do(func() (err error) {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.Addrs[0].AsSlice()})
			return err
		})
		check(t, err)
		return c
	}
	from, to := open(k.A), open(k.B)
	began := time.Now()
	for i := range sent {
		if _, err := from.WriteTo([]byte{byte(i)}, to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	// The model has decided about a datagram once it is counted; those that are not
	// lost arrive.
	counters := func() netem.PathCounters { ab, _ := k.Counters(); return ab }
	for counters().Datagrams < sent {
		time.Sleep(time.Millisecond)
	}
	want := sent - int(counters().Lost)
	buf := make([]byte, 10)
	for i := range want {
		if _, _, err := to.ReadFrom(buf); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); i == 0 && took < delay {
			t.Errorf("the first datagram arrives after %v, the link takes %v", took, delay)
		}
	}
	if want < sent/4 || want > sent*3/4 {
		t.Errorf("%d of %d datagrams arrive over a link that loses half", want, sent)
	}
	if err := errors.Join(from.Close(), to.Close(), k.Close()); err != nil {
		t.Error(err)
	}
}

// A marked header is valid: the sum of its words is all ones.
func TestMarkedHeaderSum(t *testing.T) {
	h := []byte{0x45, 0, 0, 0x54, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 92, 0, 1, 10, 92, 0, 2}
	sum := func() (s uint32) {
		for i := 0; i < len(h); i += 2 {
			s += uint32(binary.BigEndian.Uint16(h[i:]))
		}
		for s > 0xFFFF {
			s = s&0xFFFF + s>>16
		}
		return s
	}
	for tos := range byte(4) {
		h[1], h[10], h[11] = tos, 0, 0
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum()))
		if got := capable(h); got != (tos != 0) {
			t.Errorf("type of service %d: ECN-capable %t", tos, got)
		}
		mark(h)
		if h[1] != 3 || sum() != 0xFFFF {
			t.Errorf("type of service %d: marked header %x is not valid", tos, h)
		}
	}
}
