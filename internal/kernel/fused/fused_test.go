package fused

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/softmkey/softmkey/internal/cpu"
	"github.com/softmkey/softmkey/internal/kernel/aesxts"
	"github.com/softmkey/softmkey/internal/kernel/ref"
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
	// What Go aligns to 8 bytes only is moved to a cache line.
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

// mul multiplies in AES's field.
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

// TestSchedule holds the test's own expansion to crypto/aes.
func TestSchedule(t *testing.T) {
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

// scene is a run over blocks and units in random places, and what it should give.
type scene struct {
	run            Run
	blocks, fields []byte // back to back
	units          []byte // of them, encrypted
	memory         []byte
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

	// Places for n blocks and n units, with gaps.
	const room = UnitSize + 64
	s.memory = randomBytes(r, 2*MaxUnits*room)
	for i, p := range r.Perm(2 * n) {
		at := &s.memory[p*room+r.IntN(64)]
		if i < n {
			s.run.Blocks[i] = at
		} else {
			s.run.Units[i-n] = at
		}
	}
	return s
}

func (s *scene) place(places *[MaxUnits]*byte, b []byte, size int) {
	for i := range s.run.N {
		copy(unsafe.Slice(places[i], size), b[i*size:])
	}
}

func (s *scene) at(places *[MaxUnits]*byte, size int) (b []byte) {
	for i := range s.run.N {
		b = append(b, unsafe.Slice(places[i], size)...)
	}
	return b
}

// TestRun compares runs of every length with the twins of the two steps.
func TestRun(t *testing.T) {
	if cpu.Best() == cpu.AVX512 && !Available() {
		t.Fatal("this machine has a kernel, and it is not available")
	}
	if !Available() {
		return
	}
	for _, size := range []int{32, 64} {
		for n := 1; n <= MaxUnits; n++ {
			t.Run(fmt.Sprintf("%d/%d", size*4, n), func(t *testing.T) {
				for seed := range uint64(4) {
					r := rand.New(rand.NewPCG(seed, uint64(n)))
					raw := randomBytes(r, size)
					twin, err := aesxts.New(cpu.Generic, nil, raw)
					if err != nil {
						t.Fatal(err)
					}
					testRun(t, r, newScene(r, &twin, n), newSchedule(raw))
				}
			})
		}
	}
}

func testRun(t *testing.T, r *rand.Rand, s *scene, keys *Schedule) {
	n := s.run.N
	s.place(&s.run.Blocks, s.blocks, BlockSize)
	want := bytes.Clone(s.memory)
	s.run.Encrypt(keys)
	if got := s.at(&s.run.Units, UnitSize); !bytes.Equal(got, s.units) {
		for i := range n {
			if !bytes.Equal(got[i*UnitSize:][:UnitSize], s.units[i*UnitSize:][:UnitSize]) {
				t.Fatalf("encrypted: unit %d of %d differs\n%x\n%x", i, n, got[i*UnitSize:][:UnitSize], s.units[i*UnitSize:][:UnitSize])
			}
		}
	}
	// The units put into what was there before is all that has changed.
	for i := range n {
		copy(want[s.offset(s.run.Units[i]):], s.units[i*UnitSize:][:UnitSize])
	}
	if !bytes.Equal(s.memory, want) {
		t.Fatalf("encrypted: wrote elsewhere")
	}

	clean := bytes.Clone(s.memory)
	s.wipe(&s.run.Blocks)
	if diff := s.run.Decrypt(keys, ^uint64(0)); diff != 0 {
		t.Errorf("decrypted: sound fields differ: %#x", diff)
	}
	if !bytes.Equal(s.memory, clean) {
		t.Errorf("decrypted: differs")
	}
	for i := range n {
		if !bytes.Equal(s.run.Fields[i][:], s.fields[i*FieldSize:][:FieldSize]) {
			t.Errorf("field %d: %x, want %x", i, s.run.Fields[i], s.fields[i*FieldSize:][:FieldSize])
		}
	}

	// A wrong tag, guard or bit of data in any unit shows, under the mask.
	for range 8 {
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
			s.flip(r)
			mask = ^uint64(0)
		}
		if diff := bad.Decrypt(keys, mask); diff == 0 || diff&^mask != 0 {
			t.Errorf("a fault was not seen: %#x", diff)
		}
		if diff := bad.Decrypt(keys, 0); diff != 0 {
			t.Errorf("outside of the mask: %#x", diff)
		}
		s.place(&s.run.Units, s.units, UnitSize)
	}
}

// flip changes a bit of some unit.
func (s *scene) flip(r *rand.Rand) {
	unit := unsafe.Slice(s.run.Units[r.IntN(s.run.N)], UnitSize)
	unit[r.IntN(UnitSize)] ^= 1 << r.IntN(8)
}

func (s *scene) wipe(places *[MaxUnits]*byte) {
	s.place(places, make([]byte, s.run.N*BlockSize), BlockSize)
}

// offset returns where in s.memory p is.
func (s *scene) offset(p *byte) uintptr {
	return uintptr(unsafe.Pointer(p)) - uintptr(unsafe.Pointer(unsafe.SliceData(s.memory)))
}

func BenchmarkRun(b *testing.B) {
	if !Available() {
		return
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{32, 64} {
		for _, n := range []int{1, 8, 64} {
			raw := randomBytes(r, size)
			key, err := aesxts.New(cpu.AVX512, make([]byte, aesxts.MemorySize), raw)
			if err != nil {
				b.Fatal(err)
			}
			s := newScene(r, &key, n)
			keys := newSchedule(raw)
			for name, f := range map[string]func(){
				"encrypt":      func() { s.run.Encrypt(keys) },
				"decrypt":      func() { s.run.Decrypt(keys, 0) },
				"encryptAlone": func() { key.Crypt(false, s.units, 520, s.units, 520, 520, n, 1, 0) },
				"decryptAlone": func() { key.Crypt(true, s.units, 520, s.units, 520, 520, n, 1, 0) },
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
