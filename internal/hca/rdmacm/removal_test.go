package rdmacm

import (
	"net/netip"
	"testing"
)

// TestDeviceRemoval fails a device: each id that is bound to it gets the event device removal, with the
// id's own cookie, whatever the state of the id, and can be destroyed after it. The ids without a
// device and those of another device get nothing.
func TestDeviceRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		ca, cb := a.channel(), b.channel()
		client := connected(a, b, ca, cb)
		idle := resolved(a, ca, 0xa1, 0x0106, "192.0.2.2:7174")
		all := listening(a, ca, 0xa2, 0x0106, "0.0.0.0:7175")
		fresh := a.createID(ca, 0xa3, 0x0106)

		a.m.Removed(n.services[netip.MustParseAddr("192.0.2.2")])
		if e, ok := a.event(ca); ok {
			t.Errorf("another device has failed: event %+v", e)
		}
		a.m.Removed(n.services[addrA])
		want := map[uint32]uint64{client: 2, idle: 0xa1}
		for range len(want) {
			e := a.expect(ca, eventDeviceRemoval)
			if uid, ok := want[e.id]; !ok || uid != e.uid || e.status != 0 {
				t.Errorf("event %+v; the ids of the device and their cookies are %v", e, want)
			}
			delete(want, e.id)
		}
		if e, ok := a.event(ca); ok {
			t.Errorf("event %+v of an id that has no device", e)
		}
		if e, ok := b.event(cb); ok {
			t.Errorf("the device of the peer is well: event %+v", e)
		}
		// The removal is counted: rdma_destroy_id waits until the program has acknowledged so many events.
		for id, want := range map[uint32]uint32{client: 4, idle: 3, all: 0, fresh: 0} {
			if events := a.destroyID(ca, id); events != want {
				t.Errorf("id %d was destroyed after %d events, expected %d", id, events, want)
			}
		}
	})
}
