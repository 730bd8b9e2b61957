package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// TestPayload has the payloads that two ends agree on.
func TestPayload(t *testing.T) {
	offer := func(n int) uint32 { return CapSelective | uint32(n/payloadUnit)<<capPayloadShift }
	for _, c := range []struct {
		name      string
		a, b      uint32
		mtu, want int
	}{
		{"Ethernet", offer(1408), offer(1408), 1024, 1408},
		{"jumbo frames", offer(8896), offer(8896), 4096, 8896},
		{"one side with jumbo frames", offer(8896), offer(1408), 1024, 1408},
		{"a tunnel", offer(1408), offer(1280), 1024, 1280},
		{"a shorter path MTU was asked for", offer(1408), offer(1408), 512, 512},
		{"a much shorter one", offer(8896), offer(8896), 1024, 1024},
		{"an older peer", offer(1408), CapSelective, 1024, 1024},
		{"a standard peer", offer(1408), 0, 1024, 1024},
		{"more than any device offers", ^uint32(0), ^uint32(0), 4096, wire.MaxPayload},
	} {
		common := CommonCaps(c.a, c.b)
		if back := CommonCaps(c.b, c.a); back != common {
			t.Errorf("%s: %#x and %#x in common", c.name, common, back)
		}
		if got := Payload(common, c.mtu); got != c.want {
			t.Errorf("%s: payload %d, want %d", c.name, got, c.want)
		}
		if want := c.a & c.b & CapSelective; common&CapSelective != want {
			t.Errorf("%s: capabilities %#x", c.name, common)
		}
	}
}
