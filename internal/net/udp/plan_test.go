package udp

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/packetconn"
)

var v4 = netip.MustParseAddrPort("192.0.2.1:4791")

func TestCount(t *testing.T) {
	for _, c := range []struct{ n, seg, want int }{
		{0, 0, 1}, {0, 10, 1}, {10, 0, 1}, {10, 10, 1}, {10, 11, 1}, {10, 9, 2}, {10, 5, 2}, {11, 5, 3}, {10, 1, 10},
	} {
		buf := make([]byte, c.n, c.n+1)
		for i := range buf {
			buf[i] = byte(i)
		}
		d := packetconn.Train{Buf: buf, Seg: c.seg}
		if got := d.Count(); got != c.want {
			t.Errorf("%d bytes in segments of %d: %d datagrams, want %d", c.n, c.seg, got, c.want)
		}
		var all []byte
		for i := range d.Count() {
			p := d.At(i)
			if cap(p) != len(p) {
				t.Errorf("%d bytes in segments of %d: datagram %d can grow into its neighbour", c.n, c.seg, i)
			}
			all = append(all, p...)
		}
		if !bytes.Equal(all, buf) {
			t.Errorf("%d bytes in segments of %d: the datagrams do not make up the train", c.n, c.seg)
		}
	}
}

func TestPlan(t *testing.T) {
	train := func(n, seg int) packetconn.Train {
		return packetconn.Train{Addr: v4, Buf: make([]byte, n), Seg: seg}
	}
	for _, c := range []struct {
		name   string
		trains []packetconn.Train
		gso    bool
		want   []message
	}{
		{"nothing", nil, true, nil},
		{"empty datagram", []packetconn.Train{train(0, 0)}, true, []message{{0, 0, 0, 0}}},
		{"single, no seg", []packetconn.Train{train(9, 0)}, true, []message{{0, 0, 9, 0}}},
		{"single, seg longer", []packetconn.Train{train(9, 10)}, true, []message{{0, 0, 9, 0}}},
		{"single, exact", []packetconn.Train{train(9, 9)}, true, []message{{0, 0, 9, 0}}},
		{"train", []packetconn.Train{train(25, 10)}, true, []message{{0, 0, 25, 10}}},
		{"two trains", []packetconn.Train{train(25, 10), train(20, 10)}, true, []message{{0, 0, 25, 10}, {1, 0, 20, 10}}},
		{"train, one by one", []packetconn.Train{train(25, 10)}, false, []message{{0, 0, 10, 0}, {0, 10, 10, 0}, {0, 20, 5, 0}}},
		{"even train, one by one", []packetconn.Train{train(20, 10)}, false, []message{{0, 0, 10, 0}, {0, 10, 10, 0}}},
		{"mixed, one by one", []packetconn.Train{train(0, 0), train(15, 10), train(3, 0)}, false,
			[]message{{0, 0, 0, 0}, {1, 0, 10, 0}, {1, 10, 5, 0}, {2, 0, 3, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The messages sent must not depend on the size of a batch, nor
			// on how many messages of a batch the system takes.
			for room := 1; room <= len(c.want)+1; room++ {
				for taken := 1; taken <= room; taken++ {
					var p plan
					var got []message
					dst := make([]message, room)
					for {
						n := p.fill(dst, c.trains, c.gso)
						if n == 0 {
							break
						}
						for _, m := range dst[:min(n, taken)] {
							got = append(got, m)
							p.done(m, c.trains)
						}
					}
					if p.train != len(c.trains) || p.off != 0 {
						t.Errorf("room %d, %d taken: ends at %+v", room, taken, p)
					}
					if len(got) != len(c.want) {
						t.Fatalf("room %d, %d taken: %v, want %v", room, taken, got, c.want)
					}
					for i := range got {
						if got[i] != c.want[i] {
							t.Errorf("room %d, %d taken: message %d is %+v, want %+v", room, taken, i, got[i], c.want[i])
						}
					}
				}
			}
		})
	}
}

// When GSO fails for a train, its datagrams are sent one by one.
func TestPlanDegrades(t *testing.T) {
	trains := []packetconn.Train{{Addr: v4, Buf: make([]byte, 20), Seg: 10}, {Addr: v4, Buf: make([]byte, 15), Seg: 10}}
	var p plan
	dst := make([]message, 8)
	if n := p.fill(dst, trains, true); n != 2 {
		t.Fatalf("%d messages", n)
	}
	p.done(dst[0], trains)
	n := p.fill(dst, trains, false)
	if n != 2 || dst[0] != (message{1, 0, 10, 0}) || dst[1] != (message{1, 10, 5, 0}) {
		t.Errorf("after the change: %v", dst[:n])
	}
}

func TestCheckTrain(t *testing.T) {
	l := packetconn.Limits{Datagrams: 4, Bytes: 100}
	local := v4.Addr()
	for _, c := range []struct {
		name string
		d    packetconn.Train
		want error
	}{
		{"at both limits", packetconn.Train{Addr: v4, Buf: make([]byte, 100), Seg: 25}, nil},
		{"one datagram", packetconn.Train{Addr: v4, Buf: make([]byte, 100)}, nil},
		{"bytes", packetconn.Train{Addr: v4, Buf: make([]byte, 101), Seg: 50}, syscall.EMSGSIZE},
		{"datagrams", packetconn.Train{Addr: v4, Buf: make([]byte, 5), Seg: 1}, syscall.EMSGSIZE},
		{"other family", packetconn.Train{Addr: netip.MustParseAddrPort("[2001:db8::1]:1")}, syscall.EINVAL},
		{"mapped", packetconn.Train{Addr: netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")}, syscall.EINVAL},
		{"no address", packetconn.Train{}, syscall.EINVAL},
	} {
		if err := l.Check(local, &c.d); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
