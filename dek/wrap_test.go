package dek

import (
	"bytes"
	"encoding/hex"
	"syscall"
	"testing"
)

func unhex(s string) []byte { return must(hex.DecodeString(s)) }

// TestWrapVectors checks the vectors of RFC 3394, section 4, with the KEK sizes of a
// device.
func TestWrapVectors(t *testing.T) {
	kek := "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	data := "00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f"
	for _, v := range []struct {
		section   string
		kek, data string
		wrapped   string
	}{
		{"4.1", kek[:32], data[:32], "1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5"},
		{"4.3", kek, data[:32], "64e8c3f9ce0f5ba263e9777905818a2a93c8191e7d6e8ae7"},
		{"4.5", kek, data[:48], "a8f9bc1612c68b3ff6e6f4fbe30e71e4769c8b80a32cb8958cd5d17d6b254da1"},
		{"4.6", kek, data, "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21"},
	} {
		got := must(Wrap(unhex(v.kek), unhex(v.data)))
		if !bytes.Equal(got, unhex(v.wrapped)) {
			t.Errorf("%s: wrapped: got %x, want %s", v.section, got, v.wrapped)
		}
		back := must(Unwrap(unhex(v.kek), got))
		if !bytes.Equal(back, unhex(v.data)) {
			t.Errorf("%s: unwrapped: got %x, want %s", v.section, back, v.data)
		}
	}
}

func TestWrapRefuses(t *testing.T) {
	for _, n := range []int{0, 8, 15, 17, 33, 41} {
		wantErrno(t, "wrap", second(Wrap(keyOf(16, 0), keyOf(n, 0))), syscall.EINVAL)
	}
	for _, n := range []int{0, 8, 16, 23, 25, 41} {
		wantErrno(t, "unwrap", second(Unwrap(keyOf(16, 0), keyOf(n, 0))), syscall.EINVAL)
	}
	for _, n := range []int{0, 15, 24, 33} {
		wantErrno(t, "wrap under a bad KEK", second(Wrap(keyOf(n, 0), keyOf(32, 0))), syscall.EINVAL)
		wantErrno(t, "unwrap under a bad KEK", second(Unwrap(keyOf(n, 0), keyOf(40, 0))), syscall.EINVAL)
	}
}

// TestUnwrapFindsEveryFlip flips each bit of a wrapped key, which unwrapping must detect.
func TestUnwrapFindsEveryFlip(t *testing.T) {
	kek := keyOf(32, 9)
	wrapped := must(Wrap(kek, keyOf(72, 0)))
	for i := range 8 * len(wrapped) {
		wrapped[i/8] ^= 1 << (i % 8)
		wantErrno(t, "unwrap", second(Unwrap(kek, wrapped)), syscall.EINVAL)
		wrapped[i/8] ^= 1 << (i % 8)
	}
}

func TestParse(t *testing.T) {
	raw32, raw64 := keyOf(32, 0x80), keyOf(64, 0x80)
	for _, tt := range []struct {
		name  string
		parse func([]byte) ([]byte, error)
		file  string
		want  []byte // nil: EINVAL
	}{
		{"32 raw", ParseKey, string(raw32), raw32},
		{"64 raw", ParseKey, string(raw64), raw64},
		{"32 hex", ParseKey, hex.EncodeToString(raw32), raw32},
		{"64 hex", ParseKey, hex.EncodeToString(raw64), raw64},
		{"hex with a line end", ParseKey, hex.EncodeToString(raw64) + "\r\n", raw64},
		{"hex in lines and groups", ParseKey, " 8081 8283\n" + hex.EncodeToString(raw32[4:]) + "\n", raw32},
		{"upper case", ParseKey, string(bytes.ToUpper([]byte(hex.EncodeToString(raw32)))), raw32},
		{"raw that ends like a line", ParseKey, string(raw32[:31]) + "\n", append(keyOf(31, 0x80), '\n')},
		{"33 raw", ParseKey, string(keyOf(33, 0x80)), nil},
		{"32 raw and a line end", ParseKey, string(raw32) + "\n", nil},
		{"empty", ParseKey, "", nil},
		{"odd digits", ParseKey, hex.EncodeToString(raw32)[1:], nil},
		{"equal halves", ParseKey, string(make([]byte, 32)), nil},
		{"a wrapped key", ParseKey, string(keyOf(40, 0x80)), nil},
		{"KEK 16", ParseKEK, string(raw32[:16]), raw32[:16]},
		{"KEK 32 hex", ParseKEK, hex.EncodeToString(raw32), raw32},
		{"KEK 24", ParseKEK, string(raw32[:24]), nil},
		{"wrapped 40", ParseWrapped, string(keyOf(40, 0x80)), keyOf(40, 0x80)},
		{"wrapped 48", ParseWrapped, string(keyOf(48, 0x80)), keyOf(48, 0x80)},
		{"wrapped 72", ParseWrapped, hex.EncodeToString(keyOf(72, 0x80)), keyOf(72, 0x80)},
		{"wrapped 80", ParseWrapped, hex.EncodeToString(keyOf(80, 0x80)), keyOf(80, 0x80)},
		{"wrapped 32", ParseWrapped, string(raw32), nil},
	} {
		got, err := tt.parse([]byte(tt.file))
		if tt.want == nil {
			wantErrno(t, tt.name, err, syscall.EINVAL)
		} else if err != nil || !bytes.Equal(got, tt.want) {
			t.Errorf("%s: got %x, %v", tt.name, got, err)
		}
	}
}

func TestGenerate(t *testing.T) {
	for _, size := range []KeySize{Size128, Size256} {
		for _, keytag := range []bool{false, true} {
			key := Generate(size, keytag)
			d, err := New(key)
			if err != nil {
				t.Fatalf("%v, keytag %v: %v", size, keytag, err)
			}
			d.Close()
			if bytes.Equal(key, Generate(size, keytag)) {
				t.Errorf("%v: the same key twice", size)
			}
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("00"))
	f.Add(keyOf(32, 0))
	f.Add([]byte(hex.EncodeToString(keyOf(64, 0)) + "\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		before := bytes.Clone(file)
		key, err := ParseKey(file)
		if !bytes.Equal(file, before) {
			t.Fatal("the file was changed")
		}
		if err != nil {
			wantErrno(t, "parse", err, syscall.EINVAL)
			return
		}
		if again, err := ParseKey([]byte(hex.EncodeToString(key))); err != nil || !bytes.Equal(again, key) {
			t.Fatalf("%x comes back as %x, %v", key, again, err)
		}
	})
}
