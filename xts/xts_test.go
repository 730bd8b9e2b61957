package xts

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/cpu"
)

type vector struct {
	name           string
	key            []byte
	tweak          Tweak
	plain, encoded []byte
}

// readVectors reads a file of testdata/vectors; its head says what the columns are.
func readVectors(t *testing.T, name string) (vs []vector) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
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
		vs = append(vs, vector{col[0], b[0], TweakFromBytes([16]byte(b[1])), b[2], b[3]})
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return vs
}

// eachTier runs f once for each tier that this machine has, by name.
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
				c, err := newUnchecked(tier, make([]byte, MemorySize), v.key)
				if err != nil {
					t.Fatal(err)
				}
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
		key := make([]byte, n)
		for i := range key {
			key[i] = byte(i)
		}
		if _, err := New(key); !errors.Is(err, syscall.EINVAL) {
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
