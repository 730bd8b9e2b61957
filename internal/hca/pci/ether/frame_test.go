package ether

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestToeplitz computes the first rows of the verification suite of receive side scaling
// (Microsoft, "Verifying the RSS Hash Calculation").
func TestToeplitz(t *testing.T) {
	key := [40]byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	for _, test := range []struct {
		src, dst         [4]byte
		srcPort, dstPort uint16
		ip, tcp          uint32
	}{
		{[4]byte{66, 9, 149, 187}, [4]byte{161, 142, 100, 80}, 2794, 1766, 0x323e8fc2, 0x51ccc178},
		{[4]byte{199, 92, 111, 2}, [4]byte{65, 69, 140, 83}, 14230, 4739, 0xd718262a, 0xc626b0ea},
	} {
		in := append(append([]byte(nil), test.src[:]...), test.dst[:]...)
		if h := toeplitz(&key, in); h != test.ip {
			t.Errorf("%v: %#x, want %#x", test.src, h, test.ip)
		}
		in = be.AppendUint16(be.AppendUint16(in, test.srcPort), test.dstPort)
		if h := toeplitz(&key, in); h != test.tcp {
			t.Errorf("%v with ports: %#x, want %#x", test.src, h, test.tcp)
		}
	}
}

// An ICMP echo request of Linux, as it was recorded.
const echo = "020000000001964c7a89cf49080045000054758d40004001b1040a0700090a0700010800607b0ee90001e3bda4dc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"

func echoFrame(t *testing.T) []byte {
	b, err := hex.DecodeString(echo)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestIPChecksum(t *testing.T) {
	frame := echoFrame(t)
	damaged := bytes.Clone(frame)
	damaged[24], damaged[25] = 0xff, 0xff
	l := parse(damaged)
	fillChecksums(damaged, &l, true, true)
	if !bytes.Equal(damaged, frame) {
		t.Errorf("checksum %x, want %x", damaged[24:26], frame[24:26])
	}
}

// tcpFrame makes a frame with an empty checksum.
func tcpFrame(v6, vlan bool, payload []byte) (frame []byte, headers int) {
	frame = append(frame, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
	if vlan {
		frame = append(frame, 0x81, 0, 0, 7)
	}
	total := 20 + len(payload)
	if v6 {
		frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, byte(total>>8), byte(total), protoTCP, 64)
		frame = append(frame, bytes.Repeat([]byte{0x20, 1}, 8)...)
		frame = append(frame, bytes.Repeat([]byte{0x20, 2}, 8)...)
	} else {
		total += 20
		frame = append(frame, 8, 0, 0x45, 0, byte(total>>8), byte(total), 0x12, 0x34, 0x40, 0, 64, protoTCP, 0, 0, 10, 7, 0, 1, 10, 7, 0, 2)
	}
	frame = append(frame, 0x10, 0x20, 0x30, 0x40, 0, 0, 0, 100, 0, 0, 0, 200, 0x50, 0x19, 1, 0, 0, 0, 0, 0) // PSH, ACK, FIN
	return append(frame, payload...), len(frame)
}

// TestSegments splits frames. Segments carry the payload in order with right lengths, sequence
// numbers and checksums; only the last one has FIN and PSH.
func TestSegments(t *testing.T) {
	payload := make([]byte, 3500)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []bool{false, true} {
			frame, headers := tcpFrame(v6, vlan, payload)
			var got []byte
			n := 0
			err := segment(frame, headers, 1000, func(b []byte) {
				l := parse(b)
				if l.l4 == 0 || l.end != len(b) || l.v6 != v6 || l.cvlan != vlan {
					t.Fatalf("segment %d: %+v in %d bytes", n, l, len(b))
				}
				if seq := be.Uint32(b[l.l4+4:]); seq != 100+uint32(len(got)) {
					t.Errorf("segment %d: sequence number %d", n, seq)
				}
				if last := n == 3; (b[l.l4+13]&(tcpFIN|tcpPSH) != 0) != last {
					t.Errorf("segment %d: flags %#x", n, b[l.l4+13])
				}
				if s := fold(sum(uint32(protoTCP)+uint32(l.end-l.l4), addresses(b, &l)) + uint32(fold(sum(0, b[l.l4:l.end])))); s != 0xffff {
					t.Errorf("segment %d: TCP sum %#x", n, s)
				}
				if !v6 {
					if s := fold(sum(0, b[l.l3:l.l4])); s != 0xffff {
						t.Errorf("segment %d: IP sum %#x", n, s)
					}
					if id := be.Uint16(b[l.l3+4:]); id != 0x1234+uint16(n) {
						t.Errorf("segment %d: identification %#x", n, id)
					}
				}
				got = append(got, b[headers:]...)
				n++
			})
			if err != nil || n != 4 || !bytes.Equal(got, payload) {
				t.Errorf("v6 %v, vlan %v: %d segments with %d bytes, %v", v6, vlan, n, len(got), err)
			}
			if err := segment(frame, headers-1, 1000, func([]byte) { t.Error("sent") }); err == nil {
				t.Error("headers that end inside of the TCP header: no error")
			}
		}
	}
}

func TestMatchFields(t *testing.T) {
	frame, _ := tcpFrame(false, true, nil)
	l := parse(frame)
	m := fieldsOf(frame, &l)
	for _, f := range []struct {
		name   string
		off, n int
		want   uint64
	}{
		{"smac", 0, 48, 0x020000000002}, {"ethertype", 0x30, 16, 0x0800}, {"dmac", 0x40, 48, 0x020000000001}, {"first_vid", 0x74, 12, 7},
		{"ip_protocol", 0x80, 8, protoTCP}, {"cvlan_tag", 0x90, 1, 1}, {"svlan_tag", 0x91, 1, 0}, {"frag", 0x92, 1, 0}, {"ip_version", 0x93, 4, 4},
		{"tcp_flags", 0x97, 9, 0x19}, {"tcp_sport", 0xa0, 16, 0x1020}, {"tcp_dport", 0xb0, 16, 0x3040}, {"ttl", 0xd8, 8, 64},
		{"source", 0x160, 32, 0x0a070001}, {"destination", 0x1e0, 32, 0x0a070002},
	} {
		if got := prm.Bits(m[:], f.off, f.n); got != f.want {
			t.Errorf("%s: %#x, want %#x", f.name, got, f.want)
		}
	}
}

// FuzzFrame parses arbitrary frames, which must not read beyond their end.
func FuzzFrame(f *testing.F) {
	for _, vlan := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			frame, _ := tcpFrame(v6, vlan, []byte("payload"))
			f.Add(frame, 60)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, headers int) {
		if len(b) < headerEthernet {
			return
		}
		l := parse(b)
		fieldsOf(b, &l)
		packetSum(b, &l)
		fillChecksums(b, &l, true, true)
		if headers >= 0 && headers <= len(b) {
			n := 0
			segment(b, headers, 100, func([]byte) { n++ })
			if n > 1+len(b)/100 {
				t.Errorf("%d segments of %d bytes", n, len(b))
			}
		}
	})
}
