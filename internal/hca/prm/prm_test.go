package prm

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/sig"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	fatal.If(t, err)
	return b
}

// bsfBytes builds 64 bytes from words that the driver wrote.
func bsfBytes(t *testing.T, words string, inline map[int]string) []byte {
	t.Helper()
	b := make([]byte, BSFSize)
	copy(b, unhex(t, words))
	for at, s := range inline {
		copy(b[at:], unhex(t, s))
	}
	return b
}

// TestSignatureBSF decodes attributes as libmlx5 wrote them, and encodes them again.
func TestSignatureBSF(t *testing.T) {
	for _, v := range []struct {
		name  string
		bytes []byte
		want  SignatureBSF
	}{
		{"CRC32 on the wire", bsfBytes(t, "80f00100 ffffffff 2200101a 00000000", nil),
			SignatureBSF{CheckMask: 0xf0, Wire: SigDomain{Format: sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedOnes}, PSV: 0x101a}}},
		{"CRC32 in memory", bsfBytes(t, "80f00001 ffffffff 00000000 22001021", nil),
			SignatureBSF{CheckMask: 0xf0, Memory: SigDomain{Format: sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedOnes}, PSV: 0x1021}}},
		{"T10-DIF on the wire", bsfBytes(t, "80ff0100 ffffffff 0000103a 00000000", map[int]string{0x20: "c0005678 f0debc9a 01880000 0041ffff"}),
			SignatureBSF{CheckMask: 0xff, Wire: SigDomain{Format: sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 0xf0debc9a, AppMask: 0xffff, Seed: sig.SeedOnes, Flags: sig.RefRemap | sig.AppEscape}, PSV: 0x103a}}},
		{"CRC32C, seed 0, both domains", bsfBytes(t, "90f0f003 ffffffff 43000001 43000002", nil),
			SignatureBSF{CheckMask: 0xf0, Same: true, CopyMask: 0xf0,
				Memory: SigDomain{Format: sig.Format{Type: sig.CRC32C, BlockSize: 4096, Seed: sig.SeedZeros}, PSV: 2}, Wire: SigDomain{Format: sig.Format{Type: sig.CRC32C, BlockSize: 4096, Seed: sig.SeedZeros}, PSV: 1}}},
		{"CRC64 in memory, T10-DIF checksum on the wire", bsfBytes(t, "80ff0406 ffffffff 00000001 52000002", map[int]string{0x20: "c0000001 00000002 02800000 0002ffff"}),
			SignatureBSF{CheckMask: 0xff, Memory: SigDomain{Format: sig.Format{Type: sig.CRC64, BlockSize: 4048, Seed: sig.SeedOnes}, PSV: 2},
				Wire: SigDomain{Format: sig.Format{Type: sig.T10DIF, Guard: sig.GuardCSUM, BlockSize: 4160, AppTag: 1, RefTag: 2, AppMask: 0xffff, Seed: sig.SeedZeros, Flags: sig.AppRefEscape}, PSV: 1}}},
		{"none", bsfBytes(t, "80000000 ffffffff", nil), SignatureBSF{}},
	} {
		t.Run(v.name, func(t *testing.T) {
			var u UMR
			fatal.If(t, u.parseBSF(v.bytes))
			if !u.HasSignature || u.HasCrypto || u.Signature != v.want {
				t.Errorf("decoded %+v, want %+v", u.Signature, v.want)
			}
			got := make([]byte, BSFSize)
			u.Signature.Put(got, false)
			if !bytes.Equal(got, v.bytes) {
				t.Errorf("encoded\n%x, want\n%x", got, v.bytes)
			}
		})
	}
}

// TestCryptoBSF decodes crypto attributes alone and after signature attributes.
func TestCryptoBSF(t *testing.T) {
	c := CryptoBSF{Order: EncryptedRawMemory, DataUnitSize: 520, Tweak: [16]byte{1, 2, 3, 15: 9}, DEK: 0xabcde, KeyTag: [8]byte{7, 6, 5, 4, 3, 2, 1}}
	b := make([]byte, 2*BSFSize)
	c.Put(b, false)
	if b[0] != 0x81 || b[1] != 3 || b[8] != 2 {
		t.Errorf("the BSF of crypto alone begins with %x: bytes 0, 1 and 8 are %#x, %d and %d, want 0x81, 3 and 2", b[:9], b[0], b[1], b[8])
	}
	var u UMR
	if err := u.parseBSF(b[:BSFSize]); err != nil || u.HasSignature || !u.HasCrypto || u.Crypto != c {
		t.Errorf("crypto alone: decoded signature %t, crypto %t, %+v, %v; want only crypto, %+v", u.HasSignature, u.HasCrypto, u.Crypto, err, c)
	}
	s := SignatureBSF{CheckMask: 0xf0, Wire: SigDomain{Format: sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedZeros}, PSV: 5}}
	s.Put(b, true)
	c.Put(b[BSFSize:], true)
	if b[0] != 0xc0 || b[BSFSize] != 0xc1 {
		t.Errorf("the BSFs of signature and crypto begin with %#x and %#x, want 0xc0 and 0xc1", b[0], b[BSFSize])
	}
	u = UMR{}
	if err := u.parseBSF(b); err != nil || u.Signature != s || u.Crypto != c {
		t.Errorf("both: decoded %+v and %+v, %v; want %+v and %+v", u.Signature, u.Crypto, err, s, c)
	}
	for _, bad := range []func(b []byte){
		func(b []byte) { b[0] = 0x80 },
		func(b []byte) { b[BSFSize] = 0x81 },
		func(b []byte) { b[BSFSize+1] = 4 },
		func(b []byte) { b[BSFSize+3] = 1 },
		func(b []byte) { b[BSFSize+8] = 5 },
		func(b []byte) { b[2] = 9 },
		func(b []byte) { b[8] = 0x33 },
	} {
		m := bytes.Clone(b)
		bad(m)
		if err := new(UMR).parseBSF(m); err == nil {
			t.Errorf("%x was decoded", m)
		}
	}
}

// TestUMR decodes the configuration of a key with a list, as mlx5dv_wr_mkey_configure
// writes it.
func TestUMR(t *testing.T) {
	w := unhex(t, `
		00000525 abcdef0c 00000020 00123400
		80000000 00040000 00000000 203c2001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
		00003800 ffffff05 00000000 00000000 00000000 00000000 00000000 00000204 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
		00000200 00001100 00007f00 00001000
		00000004 00002200 00007f00 00002000
		00000000 00000000 00000000 00000000
		00000000 00000000 00000000 00000000`)
	var q WQE
	fatal.If(t, q.Parse(w, Connected))
	fatal.If(t, q.UMR.ParseLayout(AccessModeKLM, 0, q.UMR.List))
	u := q.UMR
	if q.Opcode != OpUMR || q.Index != 5 || q.Imm != 0x123400 || q.Blocks() != 3 {
		t.Errorf("control segment %+v", q.Control)
	}
	if u.Tag != 5 || u.Access != ContextLW|ContextRR|ContextRW || u.Len != 516 || !u.HasLayout || u.Interleaved || u.Free {
		t.Errorf("UMR %+v", u)
	}
	if len(u.Entries) != 2 || u.Entries[1] != (Data{Length: 4, LKey: 0x2200, Addr: 0x7f0000002000}) {
		t.Errorf("entries %+v", u.Entries)
	}
	// LOCAL_INV is a UMR with the bit "free".
	inv := make([]byte, 128)
	copy(inv, unhex(t, "00000025 abcdef08 00000008 00123400 98000000 00000000 00000000 20006000"))
	inv[64] = 0x40
	if err := q.Parse(inv, Connected); err != nil || !q.UMR.Free || q.UMR.Mask&MaskFree == 0 || q.UMR.HasLayout {
		t.Errorf("LOCAL_INV: %+v, %v", q.UMR, err)
	}
}

// TestInterleaved decodes a strided layout and refuses invalid ones.
func TestInterleaved(t *testing.T) {
	b := unhex(t, `
		00000208 00000400 00000002 00000002
		02400200 00001100 00000000 00001000
		00080008 00002200 00000000 00002000
		00000000 00000000 00000000 00000000`)
	u := UMR{Len: 2 * 520}
	fatal.If(t, u.parseLayout(b))
	if !u.Interleaved || u.Repeat != 2 || len(u.Strides) != 2 || u.Strides[0] != (Stride{Step: 576, Count: 512, LKey: 0x1100, Addr: 0x1000}) {
		t.Errorf("decoded %+v", u)
	}
	if err := (&UMR{Len: 1}).parseLayout(b); err == nil {
		t.Error("a length that is not the layout's was taken")
	}
	b[16] = 0 // a stride smaller than the count
	if err := (&UMR{Len: 2 * 520}).parseLayout(b); err == nil {
		t.Error("overlapping strides were taken")
	}
	b[15] = 200
	if err := (&UMR{Len: 2 * 520}).parseLayout(b); err == nil {
		t.Error("more entries than bytes were taken")
	}
}

// TestDatagram decodes the address of a datagram.
func TestDatagram(t *testing.T) {
	w := unhex(t, `
		0000000a 00123405 00000008 00000000
		11111111 00000000 80000042 0000c000 00000000 02000a00 00020940 40300123
		00000000 00000000 0000ffff 0a000002
		00000100 00001100 00000000 00001000`)
	var q WQE
	fatal.If(t, q.Parse(w, Datagram))
	a := q.AV
	if a.QKey != 0x11111111 || a.QPN != 0x42 || !a.Global || a.SGIDIndex != 3 || a.FlowLabel != 0x123 || a.TrafficClass != 9 || a.HopLimit != 0x40 || a.GID[15] != 2 {
		t.Errorf("address %+v", a)
	}
	if len(q.SGEs) != 1 || q.SGEs[0].Length != 256 {
		t.Errorf("data %+v", q.SGEs)
	}
	w[24] = 0 // a compact address
	if err := q.Parse(w, Datagram); err == nil {
		t.Error("a compact address was taken")
	}
}

// TestCQE encodes completions of all kinds and decodes them again.
func TestCQE(t *testing.T) {
	for _, c := range []CQE{
		{Opcode: CQERequester, UserIndex: 5, QPN: 0x123456, SendOp: OpRead, Counter: 77, ByteCount: 4096, Timestamp: 1 << 40},
		{Opcode: CQERecvImm, Solicited: true, UserIndex: 0xffffff, QPN: 1, Counter: 0xffff, ByteCount: 1, Imm: 0xdeadbeef, SrcQPN: 0xfffffe, SL: 3, GRH: true},
		{Opcode: CQERequesterErr, QPN: 2, SendOp: OpSend, Counter: 3, Syndrome: SyndromeRNRExceeded, Vendor: 8},
		{Opcode: CQERecvErr, QPN: 2, Counter: 3, Syndrome: SyndromeFlush},
	} {
		for owner := range uint8(2) {
			b := bytes.Repeat([]byte{0xff}, CQESize)
			c.Put(b)
			if b[63] != 0xff {
				t.Error("the last byte was written early")
			}
			b[63] = c.OpOwn(owner)
			if got, o := ParseCQE(b); got != c || o != owner {
				t.Errorf("%+v of owner %d, want %+v of %d", got, o, c, owner)
			}
		}
	}
	s := SigErrCQE{Syndrome: SigErrAppTag, Expected: 0x1122334455667788, Actual: 0x99aabbccddeeff00, Memory: true, MKey: 0x12345600, Offset: 1 << 33, QPN: 0xabcdef}
	b := make([]byte, CQESize)
	s.Put(b)
	b[63] = s.OpOwn(1)
	if got := ParseSigErrCQE(b); got != s || b[63] != 0xc1 {
		t.Errorf("%+v, last byte %#x", got, b[63])
	}
}

// TestCommands builds commands field by field at the offsets of the specification.
func TestCommands(t *testing.T) {
	in := make([]byte, 272)
	set := func(off, n int, v uint64) { SetBits(in, off, n, v) }
	set(0, 16, 0x200)
	const mkc = 0x10 * 8
	for _, f := range []struct{ off, n, v int }{
		{1, 1, 1}, {0x10, 1, 1}, {0x15, 1, 1}, {0x16, 2, 2}, {0x20, 24, 0xffffff}, {0x61, 1, 1}, {0x67, 1, 1}, {0x68, 24, 0x42},
		{0x100, 32, 8}, {0x1a0, 32, 16}, {0x1e3, 2, 1},
	} {
		set(mkc+f.off, f.n, uint64(f.v))
	}
	if c, _ := OpcodeOf(in); c != CmdCreateMKey {
		t.Errorf("command %v", c)
	}
	m := ParseCreateMKey(in)
	want := MKeyContext{Free: true, UMR: true, Access: ContextLR, Mode: AccessModeKLM, PD: 0x42, BSF: true, RemoteInvalidate: true, Octowords: 16, BSFOctowords: 8, Crypto: true}
	if m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	out := Answer(16, CmdBadParam, 0x1234)
	if out[0] != 3 || Bits(out, 32, 32) != 0x1234 {
		t.Errorf("answer %x", out)
	}
	PutPSVs(out, []uint32{0xabcdef})
	if Bits(out, 0x88, 24) != 0xabcdef && len(out) > 0x88/8 {
		t.Errorf("PSV in %x", out)
	}
	d := make([]byte, 272)
	SetBits(d, 0x10*8+0x54, 4, 1)
	SetBits(d, 0x10*8+0x58, 1, 1)
	SetBits(d, 0x10*8+0x5c, 4, KeyPurposeXTS)
	SetBits(d, 0x10*8+0x68, 24, 7)
	copy(d[0x10+0x30:], "opaque!!")
	copy(d[0x10+0x40:], "the key")
	k := ParseDEK(d)
	if k.Size != 1 || !k.HasKeyTag || k.Purpose != KeyPurposeXTS || k.PD != 7 || string(k.Opaque[:]) != "opaque!!" || !bytes.HasPrefix(k.Key[:], []byte("the key")) {
		t.Errorf("DEK %+v", k)
	}
	answer := Answer(272, CmdOK, 0)
	PutDEK(answer, &k, 1)
	if bytes.Contains(answer, []byte("the key")) {
		t.Error("the answer shows the key")
	}
	if string(answer[0x40:0x48]) != "opaque!!" || answer[0x18] != 1 {
		t.Errorf("answer %x", answer[:0x50])
	}
}

// TestCaps checks the bits that the driver is known to read.
func TestCaps(t *testing.T) {
	c := Caps{RC: true, UD: true, Signature: true, Block4048: true, CRC32C: true, CRC64: true, DrainSigErr: true, XTS: true, WrappedImport: true, CryptoLogin: true, LogMaxDEKs: 10}
	out := Answer(CapAnswerSize, CmdOK, 0)
	c.Put(out, CapGeneral)
	bit := func(off int) bool { return Bits(out, 0x80+off, 1) != 0 }
	for _, off := range []int{0x217, 0x480, 0x1f0, 0x148, 0x147, 0x212, 0x20f, 0x469, 0x3f2, 0x23f, 0x23d} {
		if !bit(off) {
			t.Errorf("bit %#x is clear", off)
		}
	}
	atomics := Answer(CapAnswerSize, CmdOK, 0)
	(&Caps{AtomicSizes: 12, DC: true}).Put(atomics, CapAtomic)
	for off, want := range map[int]uint64{0x90: 15, 0xb0: 12, 0xd0: 12} {
		if got := Bits(atomics, 0x80+off, 16); got != want {
			t.Errorf("atomics, %#x: %d, want %d", off, got, want)
		}
	}
	if Bits(atomics, 0x80+0x40, 2) != 1 {
		t.Error("old values of 8 bytes are announced as big-endian")
	}
	for _, off := range []int{0x23e, 0x23c, 0x20, 0x21b, 0x3f1} {
		if bit(off) {
			t.Errorf("bit %#x is set", off)
		}
	}
	if types := Bits(out, 0x80+0x400, 64); types != 1<<0x0c|1<<0x1f {
		t.Errorf("object types %#x", types)
	}
	out = Answer(CapAnswerSize, CmdOK, 0)
	c.Put(out, CapCrypto)
	if Bits(out, 0x80, 1) != 1 || Bits(out, 0x80+0x18, 8) != 4 || Bits(out, 0x80+0x2b, 5) != 10 {
		t.Errorf("crypto capabilities %x", out[:32])
	}
	out = Answer(CapAnswerSize, CmdOK, 0)
	if c.Put(out, 0x0f); !bytes.Equal(out, make([]byte, len(out))) {
		t.Error("a group that is not there is not zero")
	}
}

// TestBitFields stores and loads fields at every offset, also beyond the end.
func TestBitFields(t *testing.T) {
	b := make([]byte, 12)
	for off := range 120 {
		for _, n := range []int{1, 3, 8, 24, 64} {
			clear(b)
			v := uint64(0xa5a5a5a5a5a5a5a5) & (1<<n - 1)
			SetBits(b, off, n, v)
			if got := Bits(b, off, n); off+n <= 96 && got != v {
				t.Fatalf("offset %d, %d bits: %#x, want %#x", off, n, got, v)
			}
		}
	}
}

// FuzzWQE decodes arbitrary entries. Nothing may panic, and decoded ranges must lie
// within the entry.
func FuzzWQE(f *testing.F) {
	f.Add(make([]byte, 64), uint8(0))
	f.Add(unhex(f, "0000000a 00123403 00000008 00000000 80000010 00112233 44556677 8899aabb ccddeeff"), uint8(1))
	f.Add(append(unhex(f, "00000525 abcdef0c 00000020 00123400 80000000 00040000 00000000 203c2001"), make([]byte, 160)...), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, tr uint8) {
		var w WQE
		for range 2 { // the second time with reused lists
			if err := w.Parse(b, Transport(tr%3)); err != nil {
				return
			}
			if w.Size > len(b) || len(w.Inline) > len(b) || len(w.SGEs)*16 > len(b) || len(w.UMR.Entries)*16 > len(b) || len(w.UMR.Strides)*16 > len(b) {
				t.Fatalf("%d bytes gave %+v", len(b), w)
			}
			if w.UMR.HasSignature {
				var out [BSFSize]byte
				w.UMR.Signature.Put(out[:], w.UMR.HasCrypto)
			}
		}
	})
}

// FuzzCommand decodes arbitrary commands.
func FuzzCommand(f *testing.F) {
	f.Add(make([]byte, 272))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, in []byte) {
		OpcodeOf(in)
		ParseCreateMKey(in)
		ParseCreatePSV(in)
		ObjectIDOf(in)
		d := ParseDEK(in)
		l := ParseLogin(in)
		out := bytes.Clone(in)
		PutDEK(out, &d, 0)
		PutLoginState(out, &l, false)
		PutQP(out, &QPContext{State: uint8(NumberOf(in))})
		(&Caps{GIDTableSize: uint16(len(in))}).Put(out, CapGeneral)
		ParseRecv(nil, in)
	})
}
