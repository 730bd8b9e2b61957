package pci

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestLink takes the link away from a function in use and gives it back. The driver gets one event for each change
// and finds the state in QUERY_VPORT_STATE; no frame leaves meanwhile, and a reset does not bring the link back.
func TestLink(t *testing.T) {
	var sent atomic.Int32
	d := booted(t, Config{Transmit: func([]byte) { sent.Add(1) }})
	var q *eq
	for _, e := range d.dev.firmware().eqs.eqs.objects {
		if e.events>>eventPort&1 != 0 {
			q = e
		}
	}
	if q == nil {
		t.Fatal("the recorded driver asks for no event of ports")
	}
	state := func() uint64 { return prm.Bits(d.command(prm.CmdQueryVPortState, 0, 16, 16), 0x7c, 4) }
	for _, step := range []struct {
		up, event bool
		sub       uint8
		state     uint64
	}{{true, false, 0, portStateUp}, {false, true, portDown, portStateDown}, {false, false, 0, portStateDown}, {true, true, portActive, portStateUp}} {
		before := q.producer
		d.dev.SetLink(step.up)
		if got := q.producer != before; got != step.event {
			t.Fatalf("%+v: event %t", step, got)
		}
		if step.event {
			var e [eqeSize]byte
			at := q.offset + uint64(before&(1<<q.logSize-1))*eqeSize
			if err := d.mem.Read(q.pages[at>>q.shift]+at&(1<<q.shift-1), e[:]); err != nil {
				t.Fatal(err)
			}
			if e[1] != eventPort || e[3] != step.sub || e[0x20+offEventPort] != firstPort {
				t.Errorf("%+v: event %#x, subtype %d, port %#x", step, e[1], e[3], e[0x20+offEventPort])
			}
		}
		if got := state(); got != step.state {
			t.Errorf("%+v: state %d", step, got)
		}
		sent.Store(0)
		d.dev.transmit(make([]byte, 64))
		if left := sent.Load() == 1; left != step.up {
			t.Errorf("%+v: a frame left: %t", step, left)
		}
	}
	d.dev.SetLink(false)
	d.dev.Reset()
	sent.Store(0)
	if d.dev.transmit(make([]byte, 64)); sent.Load() != 0 {
		t.Error("a reset brought the link back")
	}
}

// TestFailAbsentQP names a queue pair that does not exist, before and after the driver has enabled the function.
func TestFailAbsentQP(t *testing.T) {
	for _, d := range []*driver{newDriver(t, Config{}), booted(t, Config{})} {
		if err := d.dev.FailQP(0xabcdef); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%v", err)
		}
	}
}
