//go:build linux

package nldev

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var testSystem = System{
	Devices: []Device{
		{Index: 0, Name: "mlx5_0", NodeGUID: 1, Interface: Interface{1, "lo"}, Verbs: Node{"uverbs0", 1, 231, 192}},
		{Index: 1, Name: "mlx5_1", NodeGUID: 2, Verbs: Node{"uverbs1", 1, 231, 193}},
	},
	CM: Node{"rdma_cm", 4, 10, 122},
}

func request(typ netlink.HeaderType, flags netlink.HeaderFlags, put func(*netlink.AttributeEncoder)) []byte {
	e := netlink.NewAttributeEncoder()
	put(e)
	data, err := e.Encode()
	if err != nil {
		panic(err)
	}
	b, err := netlink.Message{Header: netlink.Header{Length: uint32(16 + len(data)), Type: typ, Flags: netlink.Request | flags, Sequence: 77}, Data: data}.MarshalBinary()
	if err != nil {
		panic(err)
	}
	return b
}

func nothing(*netlink.AttributeEncoder) {}

func device(i uint32) func(*netlink.AttributeEncoder) {
	return func(e *netlink.AttributeEncoder) { e.Uint32(attrDevice, i) }
}

// TestErrors holds the errors of requests. What the tools show of the others is held by the
// command's tests, with the rdma tool itself.
func TestErrors(t *testing.T) {
	both := func(a, b func(*netlink.AttributeEncoder)) func(*netlink.AttributeEncoder) {
		return func(e *netlink.AttributeEncoder) { a(e); b(e) }
	}
	port := func(i uint32) func(*netlink.AttributeEncoder) {
		return func(e *netlink.AttributeEncoder) { e.Uint32(attrPort, i) }
	}
	for _, v := range []struct {
		name    string
		request []byte
		errno   unix.Errno
	}{
		{"no device", request(cmdDevices, 0, nothing), unix.EINVAL},
		{"unknown device", request(cmdDevices, 0, device(2)), unix.EINVAL},
		{"no port", request(cmdPorts, 0, device(0)), unix.EINVAL},
		{"unknown port", request(cmdPorts, 0, both(device(0), port(2))), unix.EINVAL},
		{"ports of nothing", request(cmdPorts, netlink.Dump, nothing), unix.EINVAL},
		{"short attribute", request(cmdDevices, 0, func(e *netlink.AttributeEncoder) { e.Uint8(attrDevice, 0) }), unix.EINVAL},
		{"unknown client", request(cmdNode, 0, func(e *netlink.AttributeEncoder) { e.String(attrNodeClient, "umad") }), unix.ENOENT},
		{"unknown command", request(client|9, netlink.Dump, nothing), unix.EOPNOTSUPP},
		{"another client", request(2<<10|1, 0, nothing), unix.EOPNOTSUPP},
	} {
		got := testSystem.Answer(v.request, 9)
		if len(got) != 1 {
			t.Errorf("%s: %d datagrams", v.name, len(got))
			continue
		}
		var m netlink.Message
		if err := m.UnmarshalBinary(got[0]); err != nil {
			t.Fatal(err)
		}
		if m.Header.Type != netlink.Error || int32(binary.NativeEndian.Uint32(m.Data)) != -int32(v.errno) || !bytes.Equal(m.Data[4:], v.request[:16]) {
			t.Errorf("%s: %+v", v.name, m)
		}
	}
	if got := testSystem.Answer(request(cmdSystem, 0, nothing)[:15], 9); got != nil {
		t.Errorf("a request of 15 bytes got %d datagrams", len(got))
	}
}

// FuzzAnswer looks for requests that break the answer, or that get more than a message for each
// device.
func FuzzAnswer(f *testing.F) {
	f.Add(request(cmdDevices, netlink.Dump, nothing))
	f.Add(request(cmdPorts, netlink.Acknowledge, device(1)))
	f.Add(request(cmdNode, 0, func(e *netlink.AttributeEncoder) { e.Uint32(attrDevice, 1); e.String(attrNodeClient, "uverbs") }))
	f.Add(request(cmdSystem, 0, nothing))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := testSystem.Answer(b, 9)
		if len(got) > len(testSystem.Devices)+1 {
			t.Fatalf("%d datagrams", len(got))
		}
		for _, d := range got {
			var m netlink.Message
			if err := m.UnmarshalBinary(d); err != nil || m.Header.PID != 9 {
				t.Fatalf("%x: %v", d, err)
			}
		}
	})
}
