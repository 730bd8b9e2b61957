package fused

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/internal/base/kernel/ref"
)

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// newSchedule expands key1 || key2 by the words of FIPS 197, 5.2.
func newSchedule(key []byte) *Schedule {
	// Go aligns to 8 bytes only, so align to a cache line here.
	mem := make([]byte, int(unsafe.Sizeof(Schedule{}))+63)
	p := unsafe.Pointer(unsafe.SliceData(mem))
	s := (*Schedule)(unsafe.Add(p, -uintptr(p)&63))
	half := len(key) / 2
	s.Rounds = uint64(half/4 + 6)
	expand(s.Enc1[:], key[:half])
	expand(s.Enc2[:], key[half:])
	n := int(s.Rounds)
	for i := range n + 1 {
		s.Dec1[i] = s.Enc1[n-i]
		if i != 0 && i != n {
			invMixColumns(&s.Dec1[i])
		}
	}
	for d, k := range []*[15][16]byte{&s.Enc1, &s.Dec1} {
		first, last := k[0], k[n]
		fill := func(i int, f func(j int) byte) {
			for j := range 64 {
				s.Wide[d][i][j] = f(j % 16)
			}
		}
		fill(0, func(j int) byte { return first[j] ^ last[j] })
		fill(1, func(j int) byte { return last[j] })
		power := last
		for m := 1; m <= 4; m++ {
			for range 8 {
				double(&power)
			}
			fill(1+m, func(j int) byte { return power[j] ^ last[j] })
		}
	}
	return s
}

func double(t *[16]byte) {
	lo, hi := binary.LittleEndian.Uint64(t[:8]), binary.LittleEndian.Uint64(t[8:])
	binary.LittleEndian.PutUint64(t[8:], hi<<1|lo>>63)
	binary.LittleEndian.PutUint64(t[:8], lo<<1^-(hi>>63)&0x87)
}

// mul multiplies in the field of AES.
func mul(a, b byte) (p byte) {
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			p ^= a
		}
		a = a<<1 ^ a>>7*0x1b
	}
	return p
}

func sbox(b byte) byte {
	inv := byte(1)
	for range 254 {
		inv = mul(inv, b)
	}
	r := byte(0x63)
	for i := range 5 {
		r ^= inv<<i | inv>>(8-i)
	}
	return r
}

func expand(out [][16]byte, key []byte) {
	nk := len(key) / 4
	w := make([][4]byte, 4*(nk+7))
	rcon := byte(1)
	for i := range w {
		if i < nk {
			copy(w[i][:], key[4*i:])
			continue
		}
		t := w[i-1]
		if i%nk == 0 {
			t = [4]byte{sbox(t[1]) ^ rcon, sbox(t[2]), sbox(t[3]), sbox(t[0])}
			rcon = mul(rcon, 2)
		} else if nk > 6 && i%nk == 4 {
			t = [4]byte{sbox(t[0]), sbox(t[1]), sbox(t[2]), sbox(t[3])}
		}
		for j := range t {
			w[i][j] = w[i-nk][j] ^ t[j]
		}
	}
	for i, x := range w {
		copy(out[i/4][i%4*4:], x[:])
	}
}

func invMixColumns(k *[16]byte) {
	for c := 0; c < 16; c += 4 {
		a := [4]byte(k[c:])
		for i := range 4 {
			k[c+i] = mul(a[i], 14) ^ mul(a[(i+1)%4], 11) ^ mul(a[(i+2)%4], 13) ^ mul(a[(i+3)%4], 9)
		}
	}
}

// TestKeyExpansion compares the test's key expansion with crypto/aes.
func TestKeyExpansion(t *testing.T) {
	for _, size := range []int{32, 64} {
		key := randomBytes(rand.New(rand.NewPCG(1, 1)), size)
		s := newSchedule(key)
		block, err := aes.NewCipher(key[:size/2])
		if err != nil {
			t.Fatal(err)
		}
		var zero, want [16]byte
		block.Encrypt(want[:], zero[:])
		if got := encryptBlock(&s.Enc1, int(s.Rounds), zero); got != want {
			t.Errorf("AES-%d: %x, want %x", size*4, got, want)
		}
	}
}

func encryptBlock(k *[15][16]byte, rounds int, b [16]byte) [16]byte {
	for r := 0; r <= rounds; r++ {
		if r > 0 {
			var s [16]byte
			for i := range s {
				s[i] = sbox(b[(i+4*(i%4))%16])
			}
			b = s
			if r < rounds {
				for c := 0; c < 16; c += 4 {
					a := [4]byte(b[c:])
					for i := range 4 {
						b[c+i] = mul(a[i], 2) ^ mul(a[(i+1)%4], 3) ^ a[(i+2)%4] ^ a[(i+3)%4]
					}
				}
			}
		}
		for i := range b {
			b[i] ^= k[r][i]
		}
	}
	return b
}

// scene is a run with its expected results.
type scene struct {
	run            Run
	blocks, fields []byte // contiguous
	units          []byte // blocks and fields, encrypted
	memory         []byte // memory in which the places are
}

func newScene(r *rand.Rand, key *aesxts.Key, n int) *scene {
	s := &scene{run: Run{N: n, Lo: r.Uint64(), Hi: r.Uint64(), Step: uint32(r.IntN(2)), Ones: r.IntN(2) == 0}}
	switch r.IntN(3) {
	case 0:
		s.run.Lo = -uint64(1 + r.IntN(n))
	case 1:
		s.run.Hi = ^uint64(0)
		s.run.Lo = -uint64(1 + r.IntN(n))
	}
	s.run.Tag = r.Uint64() & (1<<48 - 1)
	if r.IntN(2) == 0 {
		s.run.Tag |= 0xFFFFFFF0
	}
	s.blocks = randomBytes(r, n*BlockSize)
	var plain []byte
	for i := range n {
		block := s.blocks[i*BlockSize:][:BlockSize]
		seed := uint16(0)
		if s.run.Ones {
			seed = 0xFFFF
		}
		tag := s.run.Tag&(0xFFFF<<32) | uint64(uint32(s.run.Tag)+uint32(i)*s.run.Step)
		field := binary.BigEndian.AppendUint64(nil, uint64(ref.T10DIF(seed, block))<<48|tag)
		s.fields = append(s.fields, field...)
		plain = append(append(plain, block...), field...)
	}
	s.units = make([]byte, n*UnitSize)
	key.Crypt(false, s.units, UnitSize, plain, UnitSize, UnitSize, n, s.run.Lo, s.run.Hi)

	const room = UnitSize + 64
	s.memory = randomBytes(r, MaxUnits*room)
	for i, p := range r.Perm(n) {
		s.run.Places[i] = &s.memory[p*room+r.IntN(64)]
	}
	return s
}

// put copies pieces of size bytes to their places in memory.
func (s *scene) put(memory, b []byte, size int) {
	for i := range s.run.N {
		at := uintptr(unsafe.Pointer(s.run.Places[i])) - uintptr(unsafe.Pointer(unsafe.SliceData(s.memory)))
		copy(memory[at:], b[i*size:][:size])
	}
}

// TestPlainTwin compares runs of every length, in both directions and with either side in
// memory, with the plain Go code of both steps.
func TestPlainTwin(t *testing.T) {
	if !Available() {
		if cpu.Best() == cpu.AVX512 {
			t.Fatal("this machine has a kernel, and it is not available")
		}
		return
	}
	for _, size := range []int{32, 64} {
		for n := 1; n <= MaxUnits; n++ {
			t.Run(fmt.Sprintf("%d/%d", size*4, n), func(t *testing.T) {
				for seed := range uint64(3) {
					r := rand.New(rand.NewPCG(seed, uint64(n)))
					raw := randomBytes(r, size)
					twin := aesxts.New(cpu.Generic, make([]byte, aesxts.MemorySize), raw)
					s := newScene(r, &twin, n)
					keys := newSchedule(raw)
					s.encrypt(t, keys)
					s.decrypt(t, keys)
					s.faults(t, r, keys)
				}
			})
		}
	}
}

// guarded returns n bytes with a margin on either side.
func guarded(n int) (room, all []byte) {
	all = bytes.Repeat([]byte{0xEE}, n+128)
	return all[64 : 64+n : 64+n], all
}

func (s *scene) encrypt(t *testing.T, keys *Schedule) {
	n := s.run.N
	s.put(s.memory, s.blocks, BlockSize)
	got, all := guarded(n * UnitSize)
	s.run.Encrypt(keys, got)
	s.same(t, "encrypted", got, s.units, UnitSize)
	untouched(t, all)

	want := bytes.Clone(s.memory)
	s.put(want, s.units, UnitSize)
	s.run.EncryptTo(keys, s.blocks)
	s.same(t, "encrypted to memory", s.memory, want, len(want))
}

func (s *scene) decrypt(t *testing.T, keys *Schedule) {
	s.put(s.memory, s.units, UnitSize)
	got, all := guarded(s.run.N * BlockSize)
	if diff := s.run.Decrypt(keys, got, ^uint64(0)); diff != 0 {
		t.Fatalf("decrypted: sound fields differ: %#x", diff)
	}
	s.same(t, "decrypted", got, s.blocks, BlockSize)
	untouched(t, all)
	s.same(t, "fields", bytes.Join(slicesOf(s.run.Fields[:s.run.N]), nil), s.fields, FieldSize)

	want := bytes.Clone(s.memory)
	s.put(want, s.blocks, BlockSize)
	if diff := s.run.DecryptTo(keys, s.units, ^uint64(0)); diff != 0 {
		t.Fatalf("decrypted to memory: sound fields differ: %#x", diff)
	}
	s.same(t, "decrypted to memory", s.memory, want, len(want))
}

// faults checks that a wrong tag, guard or bit in any unit is reported, and nothing
// outside of the mask.
func (s *scene) faults(t *testing.T, r *rand.Rand, keys *Schedule) {
	got, _ := guarded(s.run.N * BlockSize)
	for range 8 {
		s.put(s.memory, s.units, UnitSize)
		bad := s.run
		mask := uint64(0)
		switch r.IntN(3) {
		case 0:
			bad.Tag ^= 1 << r.IntN(48)
			mask = 0xFFFFFFFFFFFF0000
		case 1:
			bad.Ones = !bad.Ones
			mask = 0xFFFF
		case 2:
			unit := unsafe.Slice(s.run.Places[r.IntN(s.run.N)], UnitSize)
			unit[r.IntN(UnitSize)] ^= 1 << r.IntN(8)
			mask = ^uint64(0)
		}
		if diff := bad.Decrypt(keys, got, mask); diff == 0 || diff&^mask != 0 {
			t.Errorf("a fault was not seen: %#x", diff)
		}
		if diff := bad.Decrypt(keys, got, 0); diff != 0 {
			t.Errorf("outside of the mask: %#x", diff)
		}
	}
}

func slicesOf(fields [][FieldSize]byte) (b [][]byte) {
	for i := range fields {
		b = append(b, fields[i][:])
	}
	return b
}

func (s *scene) same(t *testing.T, what string, got, want []byte, size int) {
	t.Helper()
	for i := 0; i < len(want); i += size {
		if !bytes.Equal(got[i:i+size], want[i:i+size]) {
			t.Fatalf("%s: %d of %d differs", what, i/size, s.run.N)
		}
	}
}

func untouched(t *testing.T, all []byte) {
	t.Helper()
	margin := bytes.Repeat([]byte{0xEE}, 64)
	if !bytes.Equal(all[:64], margin) || !bytes.Equal(all[len(all)-64:], margin) {
		t.Fatal("wrote elsewhere")
	}
}

func TestWrongSizesPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"more units than fit": func() { (&Run{N: MaxUnits + 1}).Encrypt(nil, make([]byte, (MaxUnits+1)*UnitSize)) },
		"a negative number":   func() { (&Run{N: -1}).Encrypt(nil, nil) },
		"units":               func() { (&Run{N: 2}).Encrypt(nil, make([]byte, 2*UnitSize-1)) },
		"blocks":              func() { (&Run{N: 2}).EncryptTo(nil, make([]byte, 2*BlockSize-1)) },
		"blocks to write":     func() { (&Run{N: 2}).Decrypt(nil, make([]byte, 2*BlockSize-1), 0) },
		"units to read":       func() { (&Run{N: 2}).DecryptTo(nil, make([]byte, 2*UnitSize-1), 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	(&Run{}).Encrypt(nil, nil)
	(&Run{}).Decrypt(nil, nil, 0)
}

// BenchmarkRun also measures AES-XTS alone, for comparison.
func BenchmarkRun(b *testing.B) {
	if !Available() {
		return
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{32, 64} {
		for _, n := range []int{1, 8, 64, 128} {
			raw := randomBytes(r, size)
			key := aesxts.New(cpu.AVX512, make([]byte, aesxts.MemorySize), raw)
			s := newScene(r, &key, n)
			keys := newSchedule(raw)
			out := make([]byte, n*UnitSize)
			for name, f := range map[string]func(){
				"encrypt":      func() { s.run.Encrypt(keys, out) },
				"encryptTo":    func() { s.run.EncryptTo(keys, s.blocks) },
				"decrypt":      func() { s.run.Decrypt(keys, out, 0) },
				"decryptTo":    func() { s.run.DecryptTo(keys, s.units, 0) },
				"encryptAlone": func() { key.Crypt(false, out, UnitSize, s.units, UnitSize, UnitSize, n, 1, 0) },
				"decryptAlone": func() { key.Crypt(true, out, UnitSize, s.units, UnitSize, UnitSize, n, 1, 0) },
			} {
				b.Run(fmt.Sprintf("%d/%s/%d", size*4, name, n), func(b *testing.B) {
					b.SetBytes(int64(n * BlockSize))
					for b.Loop() {
						f()
					}
				})
			}
		}
	}
}
