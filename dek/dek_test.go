package dek

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/xts"
)

// keyOf returns n distinct bytes, starting with first.
func keyOf(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func wantErrno(t *testing.T, what string, err error, errno syscall.Errno) {
	t.Helper()
	if errno == 0 && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if errno != 0 {
		var op *operr.Error
		if !errors.Is(err, errno) || !errors.As(err, &op) {
			t.Errorf("%s: %v, want an operr.Error of class %q", what, err, errno)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// second returns the error of a call with two results.
func second[T any](_ T, err error) error { return err }

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		name   string
		key    []byte
		size   KeySize
		keyTag bool
		errno  syscall.Errno
	}{
		{"128 bit", keyOf(32, 1), Size128, false, 0},
		{"256 bit", keyOf(64, 1), Size256, false, 0},
		{"128 bit with keytag", keyOf(40, 1), Size128, true, 0},
		{"256 bit with keytag", keyOf(72, 1), Size256, true, 0},
		{"no key", nil, 0, false, syscall.EINVAL},
		{"of another length", keyOf(48, 1), 0, false, syscall.EINVAL},
		{"too long", keyOf(128, 1), 0, false, syscall.EINVAL},
		{"equal halves", append(keyOf(16, 1), keyOf(16, 1)...), 0, false, syscall.EINVAL},
	} {
		d, err := New(tt.key)
		wantErrno(t, tt.name, err, tt.errno)
		if err == nil {
			if d.Size() != tt.size || d.hasKeyTag != tt.keyTag {
				t.Errorf("%s: %v", tt.name, d)
			}
			wantErrno(t, tt.name+": close", d.Close(), 0)
		}
	}
}

// TestCipher checks that the DEK encrypts with its key, without its keytag.
func TestCipher(t *testing.T) {
	for _, size := range []KeySize{Size128, Size256} {
		key := keyOf(size.Bytes()+KeyTagSize, 7)
		d := must(New(key))
		defer d.Close()
		clear(key[size.Bytes()-1:][:1]) // the DEK has a copy
		c := must(d.Acquire([8]byte(key[size.Bytes():])))
		got, want := make([]byte, 100), make([]byte, 100)
		c.EncryptUnit(got, got, xts.Tweak{Lo: 5})
		d.Release()
		must(xts.New(keyOf(size.Bytes(), 7))).EncryptUnit(want, want, xts.Tweak{Lo: 5})
		if !bytes.Equal(got, want) {
			t.Errorf("%v: another ciphertext than the key's", size)
		}
	}
}

func TestKeyTag(t *testing.T) {
	tagged := must(New(keyOf(40, 0)))
	plain := must(New(keyOf(32, 0)))
	right := [8]byte(keyOf(8, 32))
	for i := range 64 {
		wrong := right
		wrong[i/8] ^= 1 << (i % 8)
		wantErrno(t, "wrong keytag", second(tagged.Acquire(wrong)), syscall.EINVAL)
		wantErrno(t, "any keytag for a DEK without", second(plain.Acquire(wrong)), 0)
		plain.Release()
	}
	wantErrno(t, "right keytag", second(tagged.Acquire(right)), 0)
	tagged.Release()
	// A failed Acquire does not hold the DEK.
	wantErrno(t, "close", tagged.Close(), 0)
	wantErrno(t, "close", plain.Close(), 0)
}

func TestClose(t *testing.T) {
	d := must(New(keyOf(32, 3)))
	must(d.Acquire([8]byte{}))
	wantErrno(t, "hold", d.Hold(), 0)
	wantErrno(t, "close while acquired", d.Close(), syscall.EBUSY)
	d.Release()
	wantErrno(t, "close while held", d.Close(), syscall.EBUSY)
	d.Release()
	memory := d.memory.bytes()
	keep := must(allocate()) // keeps the chunk mapped
	defer keep.free()
	if bytes.Equal(memory, make([]byte, len(memory))) {
		t.Error("the expanded key is not in the slot")
	}
	wantErrno(t, "close", d.Close(), 0)
	if !bytes.Equal(memory, make([]byte, len(memory))) {
		t.Error("the slot was not overwritten")
	}
	wantErrno(t, "close again", d.Close(), 0)
	wantErrno(t, "hold", d.Hold(), syscall.EINVAL)
	wantErrno(t, "acquire", second(d.Acquire([8]byte{})), syscall.EINVAL)
	wantErrno(t, "query", d.Check(), syscall.EINVAL)
}

func TestReleaseWithoutAcquire(t *testing.T) {
	d := must(New(keyOf(32, 3)))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	d.Release()
}

func TestCheckFindsCorruption(t *testing.T) {
	d := must(New(keyOf(64, 3)))
	wantErrno(t, "fresh", d.Check(), 0)
	m := d.memory.bytes()
	for i := range m { // overwrite all bytes, because kernels may use bytes that a block does not need
		if m[i] != 0 {
			m[i] ^= 0x10
		}
	}
	wantErrno(t, "after bit flips", d.Check(), syscall.EIO)
	wantErrno(t, "acquire in state error", second(d.Acquire([8]byte{})), syscall.EINVAL)
	wantErrno(t, "close", d.Close(), 0)
}

// TestConcurrent uses and closes one DEK in many goroutines. The race detector, and a
// fault on unmapped memory, show whether a user was left with a destroyed key.
func TestConcurrent(t *testing.T) {
	for range 50 {
		d := must(New(keyOf(32, 9)))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				var unit [64]byte
				for range 100 { // a bounded number, because Close must find a moment without users
					c, err := d.Acquire([8]byte{})
					if err != nil {
						wantErrno(t, "acquire", err, syscall.EINVAL)
						return
					}
					c.EncryptUnit(unit[:], unit[:], xts.Tweak{})
					d.Check()
					d.Release()
				}
			})
		}
		wg.Go(func() {
			for errors.Is(d.Close(), syscall.EBUSY) {
			}
		})
		wg.Wait()
	}
}

// TestSlotReuse fills several chunks, frees slots in another order, and checks that slots are
// distinct and zeroed when they are reused.
func TestSlotReuse(t *testing.T) {
	var slots []slot
	for i := range 3*chunkSize/slotSize + 1 {
		s := must(allocate())
		if !bytes.Equal(s.bytes(), make([]byte, slotSize)) {
			t.Fatal("a fresh slot is not zero")
		}
		for j := range s.bytes() {
			s.bytes()[j] = byte(i + 1)
		}
		slots = append(slots, s)
	}
	for i, s := range slots {
		if !bytes.Equal(s.bytes(), bytes.Repeat([]byte{byte(i + 1)}, slotSize)) {
			t.Fatalf("slot %d was overwritten by another", i)
		}
	}
	for i := range slots {
		slots[i*8%len(slots)].free() // 8 and 49 have no common factor
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	d := must(New(keyOf(40, 0)))
	defer d.Close()
	tag := [8]byte(keyOf(8, 32))
	if n := testing.AllocsPerRun(100, func() {
		must(d.Acquire(tag))
		d.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
