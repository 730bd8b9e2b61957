//go:build linux

package uverbs

import (
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// asleep waits until the device's goroutine sleeps.
func asleep(t testing.TB, d *Device) {
	t.Helper()
	for deadline := time.Now().Add(patience * time.Millisecond); !d.pump.Asleep(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the device's goroutine does not sleep")
		}
	}
}

// TestDoorbellWakes posts requests while the device sleeps: under watchpoints where the
// system has them, with growing naps where it has none, and without the write to a register
// that hints at the record.
func TestDoorbellWakes(t *testing.T) {
	for _, v := range []struct {
		name            string
		unwatched, ring bool
	}{
		{"watched", false, true}, {"naps", true, true}, {"no hint", false, false}, {"naps, no hint", true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := openDevice(t, Config{Name: "mlx5_0", unwatched: v.unwatched})
			asleep(t, d) // the device sleeps without a timeout, because no program has a doorbell
			p := newProgram(t, d)
			pd, u := p.pd(), p.uar()
			c := p.cq(u, 16)
			q := p.qp(u, c, pd)
			addr, key := p.region(pd, 8)
			for i := range uint64(5) {
				asleep(t, d)
				q.write(i, addr, key, v.ring)
				if e := c.wait(); e.Opcode != prm.CQERequester || p.at(addr, 8).u64(0) != i {
					t.Fatalf("request %d: %+v", i, e)
				}
			}
		})
	}
}

// TestDoorbellClose closes programs while other programs use the device, and while the pump
// may be reading the doorbells of the closed ones.
func TestDoorbellClose(t *testing.T) {
	d := newDevice(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				loop(t, d, 5).file.Close()
			}
		})
	}
	all.Wait()
}

// TestFailedOpenFreesDescriptors opens a device that cannot be opened. No descriptor stays open.
func TestFailedOpenFreesDescriptors(t *testing.T) {
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := descriptors()
	none := netip.MustParseAddr("192.0.2.1") // TEST-NET-1: no host has it
	if d, err := Open(Config{Name: "mlx5_0", Addr: none}, adapter.Config{Addr: none}); err == nil {
		d.Close()
		t.Skip("NOT RUN: the host has 192.0.2.1")
	}
	if after := descriptors(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
