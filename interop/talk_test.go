package interop

import (
	"fmt"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
)

// Numbers of enum ibv_wc_status.
const (
	success       = 0
	flushed       = 5
	remoteInvalid = 9
	remoteAccess  = 10
	remoteOp      = 11
	retriesOver   = 12
)

// talk is a connection between our device and the kernel, in which either side may start.
func talk(t *testing.T, fromDevice bool, c peer.ConnectConfig) (a, b end) {
	t.Helper()
	n := newNetwork(t)
	device, kernel := n.open(t, false)
	if a, b = device, kernel; !fromDevice {
		a, b = kernel, device
	}
	join(t, a, b, false, c)
	return a, b
}

// eachWay runs a test with our device and with the kernel as the side that starts.
func eachWay(t *testing.T, f func(t *testing.T, fromDevice bool)) {
	t.Run("from the device", func(t *testing.T) { f(t, true) })
	t.Run("from the kernel", func(t *testing.T) { f(t, false) })
}

// outcome posts work and expects the status of each of its requests.
func outcome(t *testing.T, e end, w peer.Work, statuses ...int) {
	t.Helper()
	check(t, e.post(w))
	expect(t, e, statuses...)
}

func expect(t *testing.T, e end, statuses ...int) {
	t.Helper()
	got, err := e.wait(len(statuses))
	check(t, err)
	for i, wc := range got {
		if wc.Status != statuses[i] {
			t.Errorf("%v: completion %d is %+v, want status %d", e, i, wc, statuses[i])
		}
	}
}

// TestLateReceiver sends messages of several packets to a side that posts its receive
// requests late.
func TestLateReceiver(t *testing.T) {
	eachWay(t, func(t *testing.T, fromDevice bool) {
		c := peer.Defaults()
		c.MinRNRTimer = 14 // 1.28 ms
		a, b := talk(t, fromDevice, c)
		const count, size = 10, 5000
		check(t, a.fill(0, size, 1))
		check(t, a.post(peer.Work{Op: peer.Send, Count: count, Len: size}))
		for i := range count {
			// Post a receive request from time to time; all messages but one
			// wait each time.
			check(t, b.post(peer.Work{Op: peer.Recv, ID: uint64(i), Off: i * size, Len: size}))
			expect(t, b, success)
		}
		expect(t, a, make([]int, count)...)
		want, err := a.crc(0, size)
		check(t, err)
		for i := range count {
			if got, err := b.crc(i*size, size); err != nil || got != want {
				t.Errorf("message %d is wrong: %v", i, err)
			}
		}
	})
}

// TestRefusals sends requests that must be rejected with the status of the specification;
// requests after them must be flushed.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name string
		work peer.Work // RemoteAddr is added to the address of the region, RKey flips bits of its key
	}{
		{"WRITE with a wrong rkey", peer.Work{Op: peer.Write, Len: 100, RKey: 0x55}},
		{"READ with a wrong rkey", peer.Work{Op: peer.Read, Len: 100, RKey: 0x55}},
		{"WRITE beyond the region", peer.Work{Op: peer.Write, Len: 5000, RemoteAddr: regionSize - 4999}},
		{"READ before the region", peer.Work{Op: peer.Read, Len: 5000, RemoteAddr: ^uint64(0)}}, // -1
		{"atomic with a wrong rkey", peer.Work{Op: peer.FetchAdd, Len: 8, RKey: 0x55}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, fromDevice bool) {
				a, b := talk(t, fromDevice, peer.Defaults())
				addr, rkey := b.region()
				valid := peer.Work{Op: peer.Write, Len: 64, RemoteAddr: addr, RKey: rkey}
				invalid := test.work
				invalid.RemoteAddr, invalid.RKey = addr+invalid.RemoteAddr, rkey^invalid.RKey
				for _, w := range []peer.Work{valid, invalid, valid} {
					check(t, a.post(w))
				}
				expect(t, a, success, remoteAccess, flushed)
			})
		})
	}
}

// TestLongMessage sends a message longer than the receive buffer. The specification calls
// that an invalid request; rxe calls it an operational error.
func TestLongMessage(t *testing.T) {
	eachWay(t, func(t *testing.T, fromDevice bool) {
		a, b := talk(t, fromDevice, peer.Defaults())
		check(t, b.post(peer.Work{Op: peer.Recv, Len: 999}))
		want := remoteInvalid
		if fromDevice {
			want = remoteOp
		}
		outcome(t, a, peer.Work{Op: peer.Send, Len: 1000}, want)
	})
}

// TestStaleKey uses a key after a SEND with invalidate has revoked it.
func TestStaleKey(t *testing.T) {
	eachWay(t, func(t *testing.T, fromDevice bool) {
		a, b := talk(t, fromDevice, peer.Defaults())
		key, err := b.invalidatable(0, 4096)
		check(t, err)
		addr, _ := b.region()
		if _, ok := b.(*deviceEnd); ok {
			addr = 0 // our memory keys are addressed from 0
		}
		write := peer.Work{Op: peer.Write, Len: 100, RemoteAddr: addr, RKey: key}
		outcome(t, a, write, success)
		check(t, b.post(peer.Work{Op: peer.Recv}))
		outcome(t, a, peer.Work{Op: peer.SendInvalidate, InvKey: key}, success)
		got, err := b.wait(1)
		check(t, err)
		if !got[0].HasInv || got[0].InvKey != key {
			t.Errorf("received %+v, want key %#x invalidated", got[0], key)
		}
		outcome(t, a, write, remoteAccess)
	})
}

// TestVanishedPeer sends to a peer in the error state, which does not answer.
func TestVanishedPeer(t *testing.T) {
	c := peer.Defaults()
	c.Timeout, c.RetryCount = 12, 3 // 17 ms
	t.Run("the kernel vanishes", func(t *testing.T) {
		a, b := talk(t, true, c)
		check(t, b.(*guestEnd).q.Modify("error"))
		outcome(t, a, peer.Work{Op: peer.Send, Count: 3, Len: 3000}, retriesOver, flushed, flushed)
	})
	t.Run("the device vanishes", func(t *testing.T) {
		a, b := talk(t, false, c)
		check(t, b.(*deviceEnd).qp.Close())
		outcome(t, a, peer.Work{Op: peer.Send, Count: 3, Len: 3000}, retriesOver, flushed, flushed)
	})
}

// TestManyConnections uses several connections at once, each in both directions.
func TestManyConnections(t *testing.T) {
	n := newNetwork(t)
	connections := 6
	if !testing.Short() {
		connections = 16
	}
	const size, count, rounds = 20_000, 20, 5
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for i := range connections {
		a, b := n.open(t, false)
		c := peer.Defaults()
		c.MTU = []int{256, 1024, 4096}[i%3]
		join(t, a, b, false, c)
		wg.Go(func() { errs[i] = bothWays(a, b, size, count, rounds) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
}

// bothWays lets two ends write and send to each other at the same time. The first half of
// each region holds the data that it sends.
func bothWays(a, b end, size, count, rounds int) error {
	const half = regionSize / 2
	for round := range rounds {
		for i, e := range []end{a, b} {
			if err := e.fill(0, count*size, uint64(2*round+i)); err != nil {
				return err
			}
			if err := e.post(peer.Work{Op: peer.Recv, Count: count, Off: half, Len: size, Step: size}); err != nil {
				return err
			}
		}
		for i, e := range []end{a, b} {
			addr, rkey := [2]end{b, a}[i].region()
			sends := peer.Work{Op: peer.Send, Count: count, Len: size, Step: size}
			writes := sends
			writes.Op, writes.RKey, writes.RemoteAddr, writes.RemoteStep = peer.Write, rkey, addr+half+uint64(count*size), uint64(size)
			for _, w := range []peer.Work{sends, writes} {
				if err := e.post(w); err != nil {
					return err
				}
			}
		}
		for _, e := range []end{a, b} {
			got, err := e.wait(3 * count)
			if err != nil {
				return err
			}
			for _, wc := range got {
				if wc.Status != 0 {
					return fmt.Errorf("%v: %+v", e, wc)
				}
			}
		}
		for i, e := range []end{a, b} {
			want, err := [2]end{b, a}[i].crc(0, count*size)
			if err != nil {
				return err
			}
			for _, off := range []int{half, half + count*size} {
				if got, err := e.crc(off, count*size); err != nil || got != want {
					return fmt.Errorf("%v has other bytes at %d (%v)", e, off, err)
				}
			}
		}
	}
	return nil
}
