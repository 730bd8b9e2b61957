package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Each header is compared with bytes laid out by hand from the figures of chapter 9.
func TestHeaders(t *testing.T) {
	check := func(name string, put func([]byte), appended []byte, parse func([]byte) (any, int, error), value any, want string) {
		t.Run(name, func(t *testing.T) {
			w := unhex(t, want)
			b := bytes.Repeat([]byte{0xee}, len(w))
			put(b)
			if !bytes.Equal(b, w) {
				t.Errorf("Put%s: %x, want %x", name, b, w)
			}
			if !bytes.Equal(appended, append([]byte{1, 2}, w...)) {
				t.Errorf("Append%s: %x, want 0102 and %x", name, appended, w)
			}
			got, n, err := parse(append(w, 0x55))
			if got != value || n != len(w) || err != nil {
				t.Errorf("Parse%s = %+v, %d, %v", name, got, n, err)
			}
			if _, n, err := parse(w[:len(w)-1]); n != 0 || err != ErrShort {
				t.Errorf("Parse%s of a short slice: %d, %v", name, n, err)
			}
		})
	}
	start := []byte{1, 2}

	bth := BTH{Opcode: WriteOnlyImm, Solicited: true, MigReq: true, Pad: 3, Version: 0, PKey: 0xffff, BECN: true, DestQP: 0x123456, AckReq: true, PSN: 0xabcdef}
	check("BTH", func(b []byte) { PutBTH(b, &bth) }, AppendBTH(start, &bth),
		func(b []byte) (any, int, error) { h, n, err := ParseBTH(b); return h, n, err }, bth, "0bf0ffff4012345680abcdef")
	plain := BTH{Opcode: Acknowledge, Version: 5, PKey: 0x8001, FECN: true, DestQP: 1, PSN: 2}
	check("BTH", func(b []byte) { PutBTH(b, &plain) }, AppendBTH(start, &plain),
		func(b []byte) (any, int, error) { h, n, err := ParseBTH(b); return h, n, err }, plain, "110580018000000100000002")
	reth := RETH{VA: 0x0102030405060708, RKey: 0x090a0b0c, Length: 0x0d0e0f10}
	check("RETH", func(b []byte) { PutRETH(b, &reth) }, AppendRETH(start, &reth),
		func(b []byte) (any, int, error) { h, n, err := ParseRETH(b); return h, n, err }, reth, "0102030405060708090a0b0c0d0e0f10")
	atomic := AtomicETH{VA: 0x0102030405060708, RKey: 0x090a0b0c, SwapAdd: 0x1112131415161718, Compare: 0x2122232425262728}
	check("AtomicETH", func(b []byte) { PutAtomicETH(b, &atomic) }, AppendAtomicETH(start, &atomic),
		func(b []byte) (any, int, error) { h, n, err := ParseAtomicETH(b); return h, n, err }, atomic, "0102030405060708090a0b0c11121314151617182122232425262728")
	aeth := AETH{Syndrome: NAKRemoteAccess, MSN: 0x010203}
	check("AETH", func(b []byte) { PutAETH(b, &aeth) }, AppendAETH(start, &aeth),
		func(b []byte) (any, int, error) { h, n, err := ParseAETH(b); return h, n, err }, aeth, "62010203")
	ack := AtomicAckETH{Orig: 0x0102030405060708}
	check("AtomicAckETH", func(b []byte) { PutAtomicAckETH(b, &ack) }, AppendAtomicAckETH(start, &ack),
		func(b []byte) (any, int, error) { h, n, err := ParseAtomicAckETH(b); return h, n, err }, ack, "0102030405060708")
	imm := ImmDt{Imm: 0xdeadbeef}
	check("ImmDt", func(b []byte) { PutImmDt(b, &imm) }, AppendImmDt(start, &imm),
		func(b []byte) (any, int, error) { h, n, err := ParseImmDt(b); return h, n, err }, imm, "deadbeef")
	ieth := IETH{RKey: 0xdeadbe01}
	check("IETH", func(b []byte) { PutIETH(b, &ieth) }, AppendIETH(start, &ieth),
		func(b []byte) (any, int, error) { h, n, err := ParseIETH(b); return h, n, err }, ieth, "deadbe01")
	deth := DETH{QKey: 0x80010000, SrcQP: 0x123456}
	check("DETH", func(b []byte) { PutDETH(b, &deth) }, AppendDETH(start, &deth),
		func(b []byte) (any, int, error) { h, n, err := ParseDETH(b); return h, n, err }, deth, "8001000000123456")
	xrceth := XRCETH{SRQ: 0xabcdef}
	check("XRCETH", func(b []byte) { PutXRCETH(b, &xrceth) }, AppendXRCETH(start, &xrceth),
		func(b []byte) (any, int, error) { h, n, err := ParseXRCETH(b); return h, n, err }, xrceth, "00abcdef")
	cnp := CNP{DestQP: 0x118}
	check("CNP", func(b []byte) { PutCNP(b, &cnp); clear(b[28:]) }, AppendCNP(start, &cnp),
		func(b []byte) (any, int, error) { h, n, err := ParseCNP(b); return h, n, err }, cnp,
		"8100ffff400001180000000000000000000000000000000000000000"+"00000000")
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
		again[BTH](t, b, ParseBTH, AppendBTH)
		again[RETH](t, b, ParseRETH, AppendRETH)
		again[AtomicETH](t, b, ParseAtomicETH, AppendAtomicETH)
		again[AETH](t, b, ParseAETH, AppendAETH)
		again[AtomicAckETH](t, b, ParseAtomicAckETH, AppendAtomicAckETH)
		again[ImmDt](t, b, ParseImmDt, AppendImmDt)
		again[IETH](t, b, ParseIETH, AppendIETH)
		again[CNP](t, b, ParseCNP, AppendCNP)
		again[DETH](t, b, ParseDETH, AppendDETH)
		again[XRCETH](t, b, ParseXRCETH, AppendXRCETH)
	})
}

func again[H comparable](t *testing.T, b []byte, parse func([]byte) (H, int, error), add func([]byte, *H) []byte) {
	h, n, err := parse(b)
	if err != nil {
		if n != 0 {
			t.Fatalf("%T: %d bytes and an error", h, n)
		}
		return
	}
	out := add(nil, &h)
	if len(out) != n {
		t.Fatalf("%T: read %d bytes, wrote %d", h, n, len(out))
	}
	if h2, n2, err := parse(out); h2 != h || n2 != n || err != nil {
		t.Fatalf("%T: %+v became %+v, %v", h, h, h2, err)
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
