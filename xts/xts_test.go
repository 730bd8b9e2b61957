package xts

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

type vector struct {
	name           string
	key            []byte
	tweak          Tweak
	plain, encoded []byte
}

// readVectors reads a file of testdata/vectors. The head of the file describes the
// columns.
func readVectors(t *testing.T, name string) (vs []vector) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "vectors", name))
	fatal.If(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		col := strings.Fields(s.Text())
		if len(col) != 5 {
			t.Fatalf("%s: %d columns in %q", name, len(col), s.Text())
		}
		var b [4][]byte
		for i := range b {
			if b[i], err = hex.DecodeString(col[i+1]); err != nil {
				t.Fatalf("%s: %s: %v", name, col[0], err)
			}
		}
		vs = append(vs, vector{col[0], b[0], Tweak{binary.LittleEndian.Uint64(b[1]), binary.LittleEndian.Uint64(b[1][8:])}, b[2], b[3]})
	}
	fatal.If(t, s.Err())
	return vs
}

// eachTier runs f for each tier of this machine, by name.
func eachTier(t *testing.T, f func(t *testing.T, tier cpu.Tier)) {
	for _, tier := range cpu.Available() {
		t.Run(tier.String(), func(t *testing.T) { f(t, tier) })
	}
}

func TestVectors(t *testing.T) {
	for _, file := range []struct {
		name  string
		count int
	}{{"xts-ieee1619.txt", 19}, {"xts-wycheproof.txt", 82}} {
		vs := readVectors(t, file.name)
		if len(vs) != file.count {
			t.Errorf("%s: %d vectors, want %d", file.name, len(vs), file.count)
		}
		eachTier(t, func(t *testing.T, tier cpu.Tier) {
			for _, v := range vs {
				c := newUnchecked(tier, make([]byte, aesxts.MemorySize), v.key)
				got := make([]byte, len(v.plain))
				c.EncryptUnit(got, v.plain, v.tweak)
				if !bytes.Equal(got, v.encoded) {
					t.Errorf("%s: encrypted: got %x, want %x", v.name, got, v.encoded)
				}
				c.DecryptUnit(got, v.encoded, v.tweak)
				if !bytes.Equal(got, v.plain) {
					t.Errorf("%s: decrypted: got %x, want %x", v.name, got, v.plain)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33, 48, 63, 65, 128} {
		if _, err := New(count(n, 0)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("key of %d bytes: %v, want EINVAL", n, err)
		}
	}
	for _, n := range []int{32, 64} {
		key := make([]byte, n)
		if _, err := New(key); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("equal halves of %d bytes: %v, want EINVAL", n/2, err)
		}
		key[n-1] = 1
		if _, err := New(key); err != nil {
			t.Errorf("halves that differ in the last bit: %v", err)
		}
	}
}

// eachCipher runs f with a Cipher of each tier, by name.
func eachCipher(t *testing.T, key []byte, f func(t *testing.T, c *Cipher)) {
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		c, err := newTier(tier, make([]byte, aesxts.MemorySize), key)
		fatal.If(t, err)
		f(t, c)
	})
}

// count returns n bytes with rising values from first on.
func count(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// TestManyUnitsPerCall compares a call for many units with calls for each of them, with the tweaks
// from Tweak.Add.
func TestManyUnitsPerCall(t *testing.T) {
	eachCipher(t, count(64, 0), func(t *testing.T, c *Cipher) {
		for _, unit := range []int{16, 17, 40, 512, 520, 4096, 4160} {
			for _, rest := range []int{0, 16, 23, unit - 1} {
				if rest != 0 && (rest < BlockSize || rest >= unit) {
					continue
				}
				for _, first := range []Tweak{{}, {Lo: 1<<64 - 3}, {Lo: 1<<64 - 2, Hi: 1<<64 - 1}} {
					src := count(7*unit+rest, 3)
					want := make([]byte, len(src))
					for i, at := 0, 0; at < len(src); i, at = i+1, at+unit {
						end := min(at+unit, len(src))
						c.EncryptUnit(want[at:end], src[at:end], first.Add(uint64(i)))
					}
					got := make([]byte, len(src)+8) // longer than required
					c.Encrypt(got, src, unit, first)
					if !bytes.Equal(got[:len(src)], want) || !bytes.Equal(got[len(src):], make([]byte, 8)) {
						t.Fatalf("encrypt: unit %d, rest %d, tweak %+v: differs", unit, rest, first)
					}
					c.Decrypt(got[:len(src)], got[:len(src)], unit, first)
					if !bytes.Equal(got[:len(src)], src) {
						t.Fatalf("decrypt in place: unit %d, rest %d, tweak %+v: differs", unit, rest, first)
					}
				}
			}
		}
	})
}

func TestNoUnits(t *testing.T) {
	eachCipher(t, count(32, 0), func(t *testing.T, c *Cipher) {
		c.Encrypt(nil, nil, 512, Tweak{})
		c.Decrypt(nil, []byte{}, 512, Tweak{})
	})
}

func TestPanics(t *testing.T) {
	c, err := New(count(32, 0))
	fatal.If(t, err)
	closed, err := New(count(32, 0))
	fatal.If(t, err)
	closed.Close()
	closed.Close() // a second Close is allowed
	b := make([]byte, 4096)
	for _, tt := range []struct {
		name string
		want string
		f    func()
	}{
		{"unit 0", "data unit shorter", func() { c.Encrypt(b, b, 0, Tweak{}) }},
		{"unit -1", "data unit shorter", func() { c.Encrypt(b, b, -1, Tweak{}) }},
		{"unit 15", "data unit shorter", func() { c.Decrypt(b, b, 15, Tweak{}) }},
		{"unit 15 as a whole", "data unit shorter", func() { c.EncryptUnit(b, b[:15], Tweak{}) }},
		{"unit above the limit", "data unit longer", func() { c.Encrypt(b, b, maxUnit+1, Tweak{}) }},
		{"last unit of 15", "last data unit shorter", func() { c.Encrypt(b, b[:527], 512, Tweak{}) }},
		{"last unit of 1, the only one", "last data unit shorter", func() { c.Decrypt(b, b[:1], 512, Tweak{}) }},
		{"short output", "output smaller", func() { c.Encrypt(b[:511], b[:512], 512, Tweak{}) }},
		{"short output for a unit", "output smaller", func() { c.DecryptUnit(b[:511], b[:512], Tweak{}) }},
		{"overlap by one byte", "overlap", func() { c.Encrypt(b[511:], b[:512], 512, Tweak{}) }},
		{"overlap off by one", "overlap", func() { c.Decrypt(b, b[1:513], 512, Tweak{}) }},
		{"overlap of a unit", "overlap", func() { c.EncryptUnit(b[16:], b[:64], Tweak{}) }},
		{"closed", "closed", func() { closed.Encrypt(b, b, 512, Tweak{}) }},
		{"closed, one unit", "closed", func() { closed.DecryptUnit(b, b, Tweak{}) }},
		{"never made", "closed", func() { new(Cipher).EncryptUnit(b, b, Tweak{}) }},
		{"short memory", "too short", func() { aesxts.CipherIn(make([]byte, aesxts.MemorySize-1), count(32, 0)) }},
	} {
		func() {
			defer func() {
				got, _ := recover().(string)
				if !strings.HasPrefix(got, "xts: ") || !strings.Contains(got, tt.want) {
					t.Errorf("%s: panic %q, want one with %q", tt.name, got, tt.want)
				}
			}()
			tt.f()
		}()
	}

	// Adjacent memory does not overlap.
	c.Encrypt(b[512:], b[:512], 512, Tweak{})
}

func TestTweak(t *testing.T) {
	for _, tt := range []struct {
		t    Tweak
		n    uint64
		want Tweak
	}{
		{Tweak{}, 0, Tweak{}},
		{Tweak{}, 1<<64 - 1, Tweak{Lo: 1<<64 - 1}},
		{Tweak{Lo: 1<<64 - 1}, 1, Tweak{Hi: 1}},
		{Tweak{Lo: 1<<64 - 1, Hi: 1<<64 - 1}, 1, Tweak{}},
		{Tweak{Lo: 1 << 63, Hi: 5}, 1 << 63, Tweak{Hi: 6}},
	} {
		if got := tt.t.Add(tt.n); got != tt.want {
			t.Errorf("%+v + %d = %+v, want %+v", tt.t, tt.n, got, tt.want)
		}
	}
}

func TestParseTweak(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Tweak
		out  string // result of String
	}{
		{"0", Tweak{}, "0x0"},
		{"42", Tweak{Lo: 42}, "0x2a"},
		{"0x123456789a", Tweak{Lo: 0x123456789a}, "0x123456789a"},
		{"0XfF", Tweak{Lo: 255}, "0xff"},
		{"18446744073709551615", Tweak{Lo: 1<<64 - 1}, "0xffffffffffffffff"},
		{"18446744073709551616", Tweak{Hi: 1}, "0x10000000000000000"},
		{"340282366920938463463374607431768211455", Tweak{Lo: 1<<64 - 1, Hi: 1<<64 - 1}, "0xffffffffffffffffffffffffffffffff"},
		{"0x00000000000000010000000000000000", Tweak{Hi: 1}, "0x10000000000000000"},
		{"007", Tweak{Lo: 7}, "0x7"}, // decimal: sector numbers are not written in octal
	} {
		got, err := ParseTweak(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v, want %+v", tt.in, got, err, tt.want)
		}
		if got.String() != tt.out {
			t.Errorf("%q prints %q, want %q", tt.in, got.String(), tt.out)
		}
		if again, err := ParseTweak(got.String()); err != nil || again != got {
			t.Errorf("%q does not parse back: %+v, %v", got.String(), again, err)
		}
	}
	for _, in := range []string{"", "x", "0x", "-1", "+1", "1_000", "0x1g", " 1", "1.0", "1e3", "0b1", "0o7",
		"340282366920938463463374607431768211456", "0x100000000000000000000000000000000"} {
		if got, err := ParseTweak(in); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%q: %+v, %v, want EINVAL", in, got, err)
		}
	}
}

// TestShowsNothing prints a Cipher in every way and searches the output for its keys.
func TestShowsNothing(t *testing.T) {
	key := count(32, 1)
	eachCipher(t, key, func(t *testing.T, c *Cipher) {
		var out strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%b", "%o"} {
			fmt.Fprintf(&out, verb, c)
		}
		slog.New(slog.NewJSONHandler(&out, nil)).Info("", "cipher", c)
		shown := strings.ToLower(out.String())
		for _, coded := range []string{"01020304", "1 2 3 4", "0x1, 0x2, 0x3", "aqidba"} {
			if strings.Contains(shown, coded) {
				t.Errorf("%q is shown in %s", coded, shown)
			}
		}
	})
}

// TestConcurrent uses one Cipher in many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	eachCipher(t, count(64, 0), func(t *testing.T, c *Cipher) {
		want := make([]byte, 5*520)
		c.Encrypt(want, want, 520, Tweak{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					got := make([]byte, len(want))
					c.Encrypt(got, got, 520, Tweak{})
					if !bytes.Equal(got, want) {
						t.Error("another ciphertext")
					}
				}
			})
		}
		wg.Wait()
	})
}
