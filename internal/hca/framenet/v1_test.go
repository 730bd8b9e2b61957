package framenet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// v1Pair returns two connections of RoCE v1 on networks that are connected with each other, and the last frame.
func v1Pair(t *testing.T, a, b netip.Addr) (from, to *Conn, frame *[]byte) {
	frame = new([]byte)
	var na, nb *Network
	na = New(func(f []byte) { *frame = bytes.Clone(f); nb.Receive(f) })
	nb = New(func(f []byte) { na.Receive(f) })
	listen := func(n *Network, ip netip.Addr, last byte) *Conn {
		c, err := n.Listen(Address{IP: ip, MAC: MAC{2, 0, 0, 0, 0, last}, VLAN: 5, V1: true})
		if err != nil {
			t.Fatal(err)
		}
		// The same address of RoCEv2 is another place.
		if _, err := n.Listen(Address{IP: ip, MAC: MAC{2, 0, 0, 0, 0, last}, VLAN: 5}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	return listen(na, a, 1), listen(nb, b, 2), frame
}

// TestV1 sends packets of RoCE v1. The frame is compared byte for byte, with a CRC that the test computes from the
// rules of InfiniBand; the receiver gets the packet as one of RoCEv2 with a right CRC.
func TestV1(t *testing.T) {
	for _, ends := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fe80::1", "fe80::2"}} {
		t.Run(ends[0], func(t *testing.T) {
			a, b := netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1])
			from, to, frame := v1Pair(t, a, b)
			packet := make([]byte, wire.BTHLen+32+wire.ICRCLen)
			for i := range packet {
				packet[i] = byte(3 * i)
			}
			send := func() {
				t.Helper()
				p := bytes.Clone(packet)
				wire.NewFlow(from.LocalAddr(), to.LocalAddr()).Front(len(p)).PutICRC(p)
				if _, err := from.Send([]packetconn.Train{{
					Addr: to.LocalAddr(), Buf: p, TOS: 0x62, Route: packetconn.Route{MAC: MAC{2, 0, 0, 0, 0, 2}, HopLimit: 63, Priority: 3},
				}}); err != nil {
					t.Fatal(err)
				}
			}
			send()
			src, dst := a.As16(), b.As16()
			want := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x60, 5, 0x89, 0x15}
			grh := append([]byte{0x66, 0x20, 0, 0, 0, byte(len(packet)), 0x1b, 63}, append(src[:], dst[:]...)...)
			want = append(append(want, grh...), packet[:len(packet)-4]...)
			// Traffic class, flow label and hop limit, and the byte of the BTH with FECN and BECN, count as ones.
			covered := append(bytes.Repeat([]byte{0xff}, 8), want[18:]...)
			for _, at := range []int{8, 9, 10, 11, 15, 8 + 40 + 4} {
				covered[at] = 0xff
			}
			covered[8] = 0x6f
			want = binary.LittleEndian.AppendUint32(want, crc32.ChecksumIEEE(covered))
			if !bytes.Equal(*frame, want) {
				t.Errorf("frame\n%x, want\n%x", *frame, want)
			}
			got := trains(1)
			if n, err := to.Poll(got); n != 1 || err != nil {
				t.Fatalf("%d packets, %v", n, err)
			}
			p := got[0].Buf
			if !bytes.Equal(p[:len(p)-4], packet[:len(packet)-4]) || got[0].Addr != from.LocalAddr() || got[0].TOS != 0x62 {
				t.Errorf("received %x from %v, type of service %#x", p, got[0].Addr, got[0].TOS)
			}
			flow := wire.NewFlow(from.LocalAddr(), to.LocalAddr()).Front(len(p))
			if _, ok := flow.Check(p); !ok {
				t.Error("the CRC of the received packet is wrong")
			}
			bad := bytes.Clone(*frame)
			bad[len(bad)-10] ^= 1
			if !to.network.Receive(bad) {
				t.Fatal("a damaged packet is none of the connection's")
			}
			if n, err := to.Poll(got); n != 1 || err != nil {
				t.Fatalf("%d packets, %v", n, err)
			}
			if _, ok := flow.Check(got[0].Buf); ok {
				t.Error("the CRC of a damaged packet is right")
			}
		})
	}
}

// TestV1HasNoGroups refuses groups, which have other GIDs in RoCE v1.
func TestV1HasNoGroups(t *testing.T) {
	from, _, _ := v1Pair(t, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	if _, err := from.Join(netip.MustParseAddr("239.0.0.1")); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("joining: %v", err)
	}
	group := packetconn.Train{Addr: netip.MustParseAddrPort("239.0.0.1:4791"), Buf: make([]byte, 16)}
	if _, err := from.Send([]packetconn.Train{group}); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("sending: %v", err)
	}
}
