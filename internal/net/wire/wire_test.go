package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
)

// Each header is compared with bytes laid out by hand from the figures of chapter 9.
func TestHeaders(t *testing.T) {
	check(t, PutBTH, ParseBTH, BTH{Opcode: WriteOnlyImm, Solicited: true, MigReq: true, Pad: 3, Version: 0, PKey: 0xffff, BECN: true, DestQP: 0x123456, AckReq: true, PSN: 0xabcdef},
		"0bf0ffff4012345680abcdef")
	check(t, PutBTH, ParseBTH, BTH{Opcode: Acknowledge, Version: 5, PKey: 0x8001, FECN: true, DestQP: 1, PSN: 2}, "110580018000000100000002")
	check(t, PutRETH, ParseRETH, RETH{VA: 0x0102030405060708, RKey: 0x090a0b0c, Length: 0x0d0e0f10}, "0102030405060708090a0b0c0d0e0f10")
	check(t, PutAtomicETH, ParseAtomicETH, AtomicETH{VA: 0x0102030405060708, RKey: 0x090a0b0c, SwapAdd: 0x1112131415161718, Compare: 0x2122232425262728},
		"0102030405060708090a0b0c11121314151617182122232425262728")
	check(t, PutAETH, ParseAETH, AETH{Syndrome: NAKRemoteAccess, MSN: 0x010203}, "62010203")
	check(t, PutDETH, ParseDETH, DETH{QKey: 0x80010000, SrcQP: 0x123456}, "8001000000123456")

	cnp := bytes.Repeat([]byte{0xee}, CNPLen)
	PutCNP(cnp, 0x118)
	if want := unhex(t, "8100ffff4000011800000000"+"00000000000000000000000000000000"+"eeeeeeee"); !bytes.Equal(cnp, want) {
		t.Errorf("PutCNP: %x, want %x", cnp, want)
	}
}

func check[H comparable](t *testing.T, put func([]byte, *H), parse func([]byte) H, h H, want string) {
	t.Run(fmt.Sprintf("%T", h), func(t *testing.T) {
		w := unhex(t, want)
		b := bytes.Repeat([]byte{0xee}, len(w))
		if put(b, &h); !bytes.Equal(b, w) {
			t.Errorf("%+v became %x, want %x", h, b, w)
		}
		if got := parse(w); got != h {
			t.Errorf("%x became %+v", w, got)
		}
	})
}

func TestSyndrome(t *testing.T) {
	for _, v := range []struct {
		s     Syndrome
		kind  Syndrome
		value uint8
	}{{ACKNoCredits, KindACK, 31}, {0, KindACK, 0}, {RNR(12), KindRNR, 12}, {NAKRemoteOperational, KindNAK, 3}, {0x45, 0x40, 5}, {0x85, 0x80, 5}} {
		if v.s.Kind() != v.kind || v.s.Value() != v.value {
			t.Errorf("%#x: kind %#x, value %d", v.s, v.s.Kind(), v.s.Value())
		}
	}
}

// The header lengths of the opcodes are added up by hand from table 38.
func TestOpcodes(t *testing.T) {
	lens := map[Opcode]int{
		SendFirst: 12, SendMiddle: 12, SendLast: 12, SendLastImm: 16, SendOnly: 12, SendOnlyImm: 16, SendLastInv: 16, SendOnlyInv: 16,
		WriteFirst: 28, WriteMiddle: 12, WriteLast: 12, WriteLastImm: 16, WriteOnly: 28, WriteOnlyImm: 32,
		ReadRequest: 28, ReadResponseFirst: 16, ReadResponseMiddle: 12, ReadResponseLast: 16, ReadResponseOnly: 16,
		Acknowledge: 16, AtomicAcknowledge: 24, CompareSwap: 40, FetchAdd: 40,
	}
	for op, n := range map[Opcode]int{0x64: 20, 0x65: 24, 0xd8: 60, 0xd9: 60, 0xf8: 64, 0xf9: 64} {
		lens[op] = n
	}
	for _, op := range []Opcode{SendFirst, SendMiddle, SendLast, SendLastImm, SendOnly, SendOnlyImm, WriteFirst, WriteMiddle, WriteLast, WriteLastImm, WriteOnly, WriteOnlyImm} {
		lens[op|0x20] = lens[op]
	}
	for op := range Opcode(32) {
		switch n := lens[op]; {
		case n == 0:
		case op >= ReadResponseFirst && op <= AtomicAcknowledge:
			lens[op|0xa0] = n
		default:
			lens[op|0xa0] = n + 4
		}
	}
	for i := range 256 {
		op := Opcode(i)
		if got := op.HeaderLen(); got != lens[op] {
			t.Errorf("%v: header of %d bytes, want %d", op, got, lens[op])
		}
		l := op.Layout()
		if (l == 0) != (lens[op] == 0) {
			t.Errorf("%v: layout %b", op, l)
		}
		if l != 0 && (l&IsRequest != 0) == (l&IsResponse != 0) {
			t.Errorf("%v: request and response", op)
		}
	}
	if CongestionNotification.Service() != 4 || UDSendOnly.Service() != ServiceUD || SendOnly.Service() != ServiceRC || MaskedFetchAdd.Service() != ServiceRC {
		t.Error("services")
	}
	if s := fmt.Sprint(WriteOnlyImm, UDSendOnly, Opcode(0xff)); s != "RDMA WRITE Only with Immediate UD SEND Only opcode 0xff" {
		t.Error(s)
	}
}

// FuzzHeaders parses every header from arbitrary bytes, encodes it and parses the result.
// Both values must be equal.
func FuzzHeaders(f *testing.F) {
	f.Add(unhex(f, "0bf0ffff4012345680abcdef0102030405060708090a0b0c0d0e0f10deadbeef"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, AtomicETHLen)...)
		again(t, b, ParseBTH, PutBTH)
		again(t, b, ParseRETH, PutRETH)
		again(t, b, ParseAtomicETH, PutAtomicETH)
		again(t, b, ParseAETH, PutAETH)
		again(t, b, ParseDETH, PutDETH)
	})
}

func again[H comparable](t *testing.T, b []byte, parse func([]byte) H, put func([]byte, *H)) {
	h := parse(b)
	out := make([]byte, len(b))
	put(out, &h)
	if h2 := parse(out); h2 != h {
		t.Fatalf("%T: %+v became %+v", h, h, h2)
	}
}

// TestGRH compares both forms of the header with headers laid out by hand. The IPv4
// header is the textbook example of its checksum.
func TestGRH(t *testing.T) {
	var b [GRHLen]byte
	for i := range b {
		b[i] = 0xee
	}
	PutGRH(b[:], &GRH{Src: netip.MustParseAddr("192.168.0.1"), Dst: netip.MustParseAddr("192.168.0.199"), Length: 115 - 28})
	if want := unhex(t, "0000000000000000000000000000000000000000"+"4500007300004000"+"4011b861c0a80001c0a800c7"); !bytes.Equal(b[:], want) {
		t.Errorf("IPv4: %x, want %x", b, want)
	}
	if dst := GRHDst(b[:]); dst != netip.MustParseAddr("192.168.0.199") {
		t.Errorf("IPv4: destination %v", dst)
	}
	PutGRH(b[:], &GRH{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), TOS: 0xab, Length: 0x100 - 8})
	if want := unhex(t, "6ab0000001001140"+"fd000000000000000000000000000001"+"fd000000000000000000000000000002"); !bytes.Equal(b[:], want) {
		t.Errorf("IPv6: %x, want %x", b, want)
	}
	if dst := GRHDst(b[:]); dst != netip.MustParseAddr("fd00::2") {
		t.Errorf("IPv6: destination %v", dst)
	}
}
