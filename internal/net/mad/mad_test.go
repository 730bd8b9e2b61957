package mad

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func full(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }

var messages = []Message{
	&REQ{
		LocalID: 0x01020304, ServiceID: 0x0000000001061c2d, CAGUID: 0x0200_00ff_fe00_0001, QKey: 0x80010000, QPN: 0x123456,
		ResponderResources: 16, InitiatorDepth: 15, RemoteResponseTimeout: 20, LocalResponseTimeout: 19, MaxCMRetries: 15,
		Transport: UC, FlowControl: true, PSN: 0xabcdef, RetryCount: 7, RNRRetry: 6, PKey: 0xffff, MTU: 5, SRQ: true,
		VendorID: 0x0015b3,
		Path: PathInfo{
			LocalLID: 0xffff, RemoteLID: 0xfffe, LocalGID: GID(netip.MustParseAddr("192.0.2.1")), RemoteGID: GID(netip.MustParseAddr("2001:db8::2")),
			FlowLabel: 0xfedcb, Rate: 18, TrafficClass: 0x60, HopLimit: 64, SL: 3, SubnetLocal: true, AckTimeout: 17,
		},
		Private: full(REQPrivate),
	},
	&MRA{LocalID: 1, RemoteID: 2, About: AboutREP, ServiceTimeout: 24, Private: full(MRAPrivate)},
	&REJ{LocalID: 1, RemoteID: 2, About: AboutOther, Reason: ReasonConsumer, ARI: full(8), Private: full(REJPrivate)},
	&REP{
		LocalID: 1, RemoteID: 2, QKey: 3, QPN: 0x654321, PSN: 0xfedcba, ResponderResources: 4, InitiatorDepth: 5, TargetAckDelay: 15,
		Failover: 1, FlowControl: true, RNRRetry: 7, SRQ: true, CAGUID: 6, VendorID: 0x123456, Private: full(REPPrivate),
	},
	&RTU{LocalID: 1, RemoteID: 2, Private: full(RTUPrivate)},
	&DREQ{LocalID: 1, RemoteID: 2, RemoteQPN: 0x123456, Private: full(DREQPrivate)},
	&DREP{LocalID: 1, RemoteID: 2, Private: full(DREPPrivate)},
	&SIDRREQ{RequestID: 1, PKey: 0xffff, ServiceID: 0x0000000001111c2d, Private: full(SIDRREQPrivate)},
	&SIDRREP{RequestID: 1, Status: SIDRNoQP, QPN: 0x123456, ServiceID: 2, QKey: 0x01234567, Info: full(3), Private: full(SIDRREPPrivate)},
}

func TestRoundTrip(t *testing.T) {
	for _, m := range messages {
		h := Header{TID: 0x1122334455667788, Modifier: 0x99aabbcc}
		b := Append([]byte("before"), h, m)
		if len(b) != 6+Len {
			t.Fatalf("%v: %d bytes", m.Attr(), len(b)-6)
		}
		gotHeader, got, err := Parse(b[6:])
		if err != nil || gotHeader != h || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: got %+v %+v, %v; want %+v", m.Attr(), gotHeader, got, err, m)
		}
	}
}

// TestLayout compares bytes with the tables of the specification, field by field.
func TestLayout(t *testing.T) {
	for _, test := range []struct {
		m    Message
		want string // body, spaces between fields
	}{
		{messages[0], "01020304 00 0015b3 0000000001061c2d 020000fffe000001 00000000 80010000 123456 10 000000 0f 000000 a3 abcdef 9f ffff 56 f8" +
			" ffff fffe 00000000000000000000ffffc0000201 20010db8000000000000000000000002 fedcb012 60 40 38 88" +
			strings.Repeat("00", 44) + strings.Repeat("a5", 92)},
		{messages[1], "00000001 00000002 40 c0 " + strings.Repeat("a5", 222)},
		{messages[2], "00000001 00000002 80 10 001c " + strings.Repeat("a5", 8) + strings.Repeat("00", 64) + strings.Repeat("a5", 148)},
		{messages[3], "00000001 00000002 00000003 654321 12 000000 34 fedcba 56 04 05 7b f0 0000000000000006 " + strings.Repeat("a5", 196)},
		{messages[5], "00000001 00000002 123456 00 " + strings.Repeat("a5", 220)},
		{messages[7], "00000001 ffff 0000 0000000001111c2d " + strings.Repeat("a5", 216)},
		{messages[8], "00000001 03 03 0000 123456 00 0000000000000002 01234567 " + strings.Repeat("a5", 3) + strings.Repeat("00", 69) + strings.Repeat("a5", 136)},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(test.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := Append(nil, Header{}, test.m)[headerLen:]; !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %x\nwant %x", test.m.Attr(), got, want)
		}
	}
	want := "01 07 02 03 0000 0000 1122334455667788 0010 0000 99aabbcc"
	if got := Append(nil, Header{0x1122334455667788, 0x99aabbcc}, messages[0])[:headerLen]; hex.EncodeToString(got) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("header %x", got)
	}
}

func TestParseRefuses(t *testing.T) {
	good := Append(nil, Header{}, &RTU{})
	for name, test := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"short":              {func(b []byte) []byte { return b[:Len-1] }, ErrLength},
		"long":               {func(b []byte) []byte { return append(b, 0) }, ErrLength},
		"another class":      {func(b []byte) []byte { b[1] = 3; return b }, ErrClass},
		"another version":    {func(b []byte) []byte { b[2] = 1; return b }, ErrClass},
		"another method":     {func(b []byte) []byte { b[3] = 0x81; return b }, ErrClass},
		"an unknown message": {func(b []byte) []byte { b[17] = 0x19; return b }, ErrUnknown},
	} {
		if _, _, err := Parse(test.change(bytes.Clone(good))); err != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIPHeader(t *testing.T) {
	for _, h := range []IPHeader{
		{0x1234, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		{0x1234, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")},
	} {
		b := AppendIPHeader(nil, h)
		got, rest, ok := ParseIPHeader(append(b, 7))
		if !ok || got != h || !bytes.Equal(rest, []byte{7}) {
			t.Errorf("%+v: got %+v %x %v", h, got, rest, ok)
		}
	}
	want := "00401234" + "000000000000000000000000c0000201" + "000000000000000000000000c0000202"
	if got := hex.EncodeToString(AppendIPHeader(nil, IPHeader{0x1234, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")})); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range [][]byte{nil, make([]byte, 35), make([]byte, 36), append([]byte{0x10, 0x40}, make([]byte, 34)...)} {
		if _, _, ok := ParseIPHeader(bad); ok {
			t.Errorf("%x was taken", bad)
		}
	}
}

func TestServiceID(t *testing.T) {
	id := ServiceID(PortSpaceTCP, 7471)
	if id != 0x01061d2f {
		t.Errorf("service id %#x", id)
	}
	if ps, port, ok := SplitServiceID(id); ps != PortSpaceTCP || port != 7471 || !ok {
		t.Errorf("%#x %d %v", ps, port, ok)
	}
	if _, _, ok := SplitServiceID(0x1000000001061d2f); ok {
		t.Error("a service id of another kind was taken for one of a port")
	}
}

// FuzzParse checks that parsing never panics and that a parsed message survives a round
// trip.
func FuzzParse(f *testing.F) {
	for _, m := range messages {
		f.Add(Append(nil, Header{TID: 1, Modifier: 2}, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, m, err := Parse(b)
		if err != nil {
			return
		}
		again := Append(nil, h, m)
		h2, m2, err := Parse(again)
		if err != nil || h2 != h || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%+v became %+v, %v", m, m2, err)
		}
		if req, ok := m.(*REQ); ok {
			if ip, _, ok := ParseIPHeader(req.Private); ok {
				if got, _, ok := ParseIPHeader(AppendIPHeader(nil, ip)); !ok || ip.Src.Unmap() != got.Src.Unmap() && ip.Dst.Is6() == got.Dst.Is6() {
					t.Fatalf("%+v became %+v", ip, got)
				}
			}
		}
	})
}
