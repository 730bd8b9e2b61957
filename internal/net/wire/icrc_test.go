package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// icrcVectors are packets whose CRC was computed by other implementations.
var icrcVectors = []struct {
	name     string
	src, dst string
	id       uint16
	packet   string
}{
	{
		// Captured on a ConnectX-4 Lx; test/contrib/roce.uts of secdev/scapy at
		// 05c24f8f, "RoCE CNP captured on ConnectX-4 Lx".
		name: "CNP of a ConnectX-4 Lx", src: "10.0.17.1:0", dst: "10.0.18.1:4791", id: 0x718c,
		packet: "8100ffff40000118000000000000000000000000000000000000000082fd002a",
	},
	{
		// From the same file, "an example UC packet", with the CRC that it
		// asserts.
		name: "UC SEND Only", src: "192.168.0.7:49152", dst: "192.168.0.7:4791", id: 1144,
		packet: "2460ffff000000d300cf1710" + "4630818be28935d90e9a95505401be885e500000" + "78f353f3",
	},
}

func TestICRCVectors(t *testing.T) {
	for _, v := range icrcVectors {
		t.Run(v.name, func(t *testing.T) {
			p := unhex(t, v.packet)
			want := binary.LittleEndian.Uint32(p[len(p)-ICRCLen:])
			flow := NewFlow(netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst))
			front := flow.Front(len(p))
			if got := front.WithID(v.id).ICRC(p); got != want {
				t.Errorf("ICRC = %08x, want %08x", got, want)
			}
			if id, ok := front.Check(p); !ok || id != v.id {
				t.Errorf("Check = %#x, %v, want %#x, true", id, ok, v.id)
			}
			p[13] ^= 1
			if id, ok := front.Check(p); ok {
				t.Errorf("Check of a damaged packet found identification %#x", id)
			}
		})
	}
}

// icrcPlain computes the CRC by its definition: all bytes as sent, with the ones
// inserted, one bit at a time.
func icrcPlain(ip, udp, packet []byte) uint32 {
	ip, udp, packet = bytes.Clone(ip), bytes.Clone(udp), bytes.Clone(packet[:len(packet)-ICRCLen])
	if ip[0]>>4 == 4 {
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		ip[0], ip[1], ip[2], ip[3], ip[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
	}
	udp[6], udp[7] = 0xff, 0xff
	packet[4] = 0xff
	crc := ^uint32(0)
	all := bytes.Join([][]byte{bytes.Repeat([]byte{0xff}, 8), ip, udp, packet}, nil)
	for _, b := range all {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0xedb88320&-(crc&1)
		}
	}
	return ^crc
}

// headers returns the IP and UDP headers of a packet of n bytes as on the wire. The CRC
// must not depend on their time to live and checksums.
func headers(src, dst netip.AddrPort, n int, id uint16, rnd *rand.Rand) (ip, udp []byte) {
	if src.Addr().Is4() {
		ip = []byte{0x45, byte(rnd.Uint32()), 0, 0, byte(id >> 8), byte(id), 0x40, 0, byte(rnd.Uint32()), 17, byte(rnd.Uint32()), byte(rnd.Uint32())}
		binary.BigEndian.PutUint16(ip[2:], uint16(28+n))
	} else {
		ip = []byte{0x60 | byte(rnd.Uint32()&15), byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32()), 0, 0, 17, byte(rnd.Uint32())}
		binary.BigEndian.PutUint16(ip[4:], uint16(8+n))
	}
	ip = append(ip, src.Addr().AsSlice()...)
	ip = append(ip, dst.Addr().AsSlice()...)
	udp = binary.BigEndian.AppendUint16(udp, src.Port())
	udp = binary.BigEndian.AppendUint16(udp, dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+n))
	udp = binary.BigEndian.AppendUint16(udp, uint16(rnd.Uint32()))
	return ip, udp
}

func TestICRCAgainstDefinition(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	random := func(b []byte) []byte {
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	for i := range 4000 {
		size := 4
		if i%2 == 1 {
			size = 16
		}
		addr := func() netip.AddrPort {
			a, _ := netip.AddrFromSlice(random(make([]byte, size)))
			return netip.AddrPortFrom(a, uint16(rnd.Uint32()))
		}
		src, dst := addr(), addr()
		p := random(make([]byte, MinPacket+4*rnd.IntN((MaxPacket-MinPacket)/4+1)))
		id := uint16(rnd.Uint32())
		ip, udp := headers(src, dst, len(p), id, rnd)
		binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], icrcPlain(ip, udp, p))

		before := bytes.Clone(p)
		front := NewFlow(src, dst).Front(len(p))
		front.WithID(id).PutICRC(p)
		if !bytes.Equal(p, before) {
			t.Fatalf("%v > %v, %d bytes, id %#x: ICRC %x, want %x", src, dst, len(p), id, p[len(p)-4:], before[len(p)-4:])
		}
		if got, ok := front.Check(p); !ok || size == 4 && got != id {
			t.Fatalf("%v > %v, %d bytes, id %#x: Check = %#x, %v", src, dst, len(p), id, got, ok)
		}
		if !bytes.Equal(p, before) {
			t.Fatal("Check left the packet changed")
		}
		// In one pass with a copy of the payload, between n bytes of headers and
		// the padding.
		n := 5 + rnd.IntN(len(p)-ICRCLen-4)
		end := max(n, len(p)-ICRCLen-rnd.IntN(4))
		clear(p[end : len(p)-ICRCLen])
		front.WithID(id).PutICRC(p)
		q := random(make([]byte, len(p)))
		copy(q, p[:n])
		front.WithID(id).Fill(q, n, p[n:end])
		if !bytes.Equal(q, p) {
			t.Fatalf("%d bytes: Fill behind %d differs", len(p), n)
		}
		place := make([]byte, end-n)
		if got, ok := front.CheckCopying(p, n, place); !ok || size == 4 && got != id || !bytes.Equal(place, p[n:end]) {
			t.Fatalf("%d bytes: CheckCopying behind %d = %#x, %v", len(p), n, got, ok)
		}
		// The byte with FECN and BECN is not covered.
		p[4] ^= 0xc0
		if _, ok := front.Check(p); !ok {
			t.Fatalf("%v > %v, %d bytes: FECN and BECN count", src, dst, len(p))
		}
	}
}

// TestCheckIsBruteForce compares Check with a search over all identifications, on packets
// with random CRCs. A packet must pass only if some identification matches.
func TestCheckIsBruteForce(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	flow := NewFlow(netip.MustParseAddrPort("10.1.2.3:4791"), netip.MustParseAddrPort("10.1.2.4:4791"))
	for _, n := range []int{MinPacket, 20, 32, 100, 1024 + 16, MaxPacket} {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		front := flow.Front(n)
		explained := map[uint32]uint16{}
		for id := range 1 << 16 {
			explained[front.WithID(uint16(id)).ICRC(p)] = uint16(id)
		}
		if len(explained) != 1<<16 {
			t.Errorf("%d bytes: two identifications have one CRC", n)
		}
		passed := 0
		for i := range 1 << 16 {
			crc := rnd.Uint32()
			if i%16 == 0 { // covers both results
				crc = front.WithID(uint16(i)).ICRC(p)
			}
			binary.LittleEndian.PutUint32(p[n-ICRCLen:], crc)
			id, ok := front.Check(p)
			wantID, want := explained[crc]
			if ok != want || ok && id != wantID {
				t.Fatalf("%d bytes, CRC %08x: Check = %#x, %v, want %#x, %v", n, crc, id, ok, wantID, want)
			}
			if ok {
				passed++
			}
		}
		if passed < 1<<12 {
			t.Errorf("%d bytes: %d passed", n, passed)
		}
	}
}

func TestCheckLengths(t *testing.T) {
	flow := NewFlow(netip.MustParseAddrPort("10.1.2.3:4791"), netip.MustParseAddrPort("10.1.2.4:4791"))
	for _, n := range []int{MinPacket + 1, MaxPacket + 4, 65507} {
		p := make([]byte, n)
		front := flow.Front(n)
		front.WithID(7).PutICRC(p)
		if _, ok := front.Check(p); ok {
			t.Errorf("Check of %d bytes passed", n)
		}
	}
}

func TestICRCDoesNotAllocate(t *testing.T) {
	flow := NewFlow(netip.MustParseAddrPort("10.1.2.3:4791"), netip.MustParseAddrPort("10.1.2.4:4791"))
	p := make([]byte, 1024+16)
	var ok bool
	if n := testing.AllocsPerRun(100, func() {
		front := flow.Front(len(p))
		front.WithID(77).PutICRC(p)
		_, ok = front.Check(p)
	}); n != 0 || !ok {
		t.Errorf("%v allocations, %v", n, ok)
	}
}
