package fused

import (
	"bytes"
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
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n:n]
}

// newSchedule expands key1 || key2.
func newSchedule(key []byte) *Schedule {
	// Go aligns to 8 bytes only, so align to a cache line here.
	mem := make([]byte, int(unsafe.Sizeof(Schedule{}))+63)
	p := unsafe.Pointer(unsafe.SliceData(mem))
	s := (*Schedule)(unsafe.Add(p, -uintptr(p)&63))
	half := len(key) / 2
	s.Rounds = uint64(half/4 + 6)
	copy(s.Enc1[:], ref.ExpandKey(key[:half]))
	copy(s.Enc2[:], ref.ExpandKey(key[half:]))
	n := int(s.Rounds)
	for i := range n + 1 {
		s.Dec1[i] = s.Enc1[n-i]
		if i != 0 && i != n {
			s.Dec1[i] = ref.InverseMixColumns(s.Dec1[i])
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
		for m := 1; m <= 3; m++ {
			var product uint16 // of polynomials, without reduction
			for i := range 8 {
				product ^= uint16(last[16-m]^last[15]) << i * (0x87 >> i & 1)
			}
			for lane := 0; lane < 64; lane += 16 {
				binary.LittleEndian.PutUint16(s.Wide[d][6][lane+2*(m-1):], product)
			}
		}
	}
	return s
}

func double(t *[16]byte) {
	lo, hi := binary.LittleEndian.Uint64(t[:8]), binary.LittleEndian.Uint64(t[8:])
	binary.LittleEndian.PutUint64(t[8:], hi<<1|lo>>63)
	binary.LittleEndian.PutUint64(t[:8], lo<<1^-(hi>>63)&0x87)
}

// passes are all passes, without tags.
var passes = map[string]Pass{
	"seal":           {Sealed: true, Generate: true},
	"check, seal":    {Sealed: true, Check: true, Generate: true},
	"open":           {Sealed: true, Decrypt: true, Check: true},
	"open, sign":     {Sealed: true, Decrypt: true, Check: true, Generate: true},
	"check, encrypt": {Check: true},
	"encrypt, sign":  {Generate: true},
	"check, decrypt": {Decrypt: true, Check: true},
	"decrypt, sign":  {Decrypt: true, Generate: true},
}

// scene is a run, a pass, and the input and output of that pass.
type scene struct {
	run     Run
	pass    Pass
	in, out []byte // contiguous units
	fields  []byte // decrypted fields, of a sealed pass that decrypts
	memory  []byte // memory in which the places are
}

func newScene(r *rand.Rand, key *aesxts.Key, pass Pass, n int) *scene {
	s := &scene{run: Run{N: n, Lo: r.Uint64(), Hi: r.Uint64()}, pass: pass}
	switch r.IntN(3) {
	case 0:
		s.run.Lo = -uint64(1 + r.IntN(n))
	case 1:
		s.run.Hi = ^uint64(0)
		s.run.Lo = -uint64(1 + r.IntN(n))
	}
	s.pass.In, s.pass.Out, s.pass.Mask = randomTags(r), randomTags(r), ^uint64(0)

	blocks := randomBytes(r, n*BlockSize)
	crypt := func(decrypt bool, units []byte, size int) []byte {
		b := make([]byte, len(units))
		key.Crypt(decrypt, b, size, units, size, size, n, s.run.Lo, s.run.Hi)
		return b
	}
	s.in = blocks
	if pass.Check {
		s.in = sign(s.pass.In, blocks)
	}
	switch {
	case pass.Sealed && pass.Decrypt:
		for i := range n {
			s.fields = append(s.fields, s.in[i*UnitSize+BlockSize:][:FieldSize]...)
		}
		s.in = crypt(false, s.in, UnitSize)
		s.out = blocks
		if pass.Generate {
			s.out = sign(s.pass.Out, blocks)
		}
	case pass.Sealed:
		s.out = crypt(false, sign(s.pass.Out, blocks), UnitSize)
	default:
		s.out = crypt(pass.Decrypt, blocks, BlockSize)
		if pass.Generate {
			s.out = sign(s.pass.Out, s.out)
		}
	}

	const room = UnitSize + 64
	s.memory = randomBytes(r, MaxUnits*room)
	for i, p := range r.Perm(n) {
		s.run.Places[i] = &s.memory[p*room+r.IntN(64)]
	}
	return s
}

func randomTags(r *rand.Rand) Tags {
	t := Tags{Tag: r.Uint64() & (1<<48 - 1), Step: uint32(r.IntN(2)), Ones: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		t.Tag |= 0xFFFFFFF0
	}
	return t
}

// sign returns blocks with their fields.
func sign(t Tags, blocks []byte) (units []byte) {
	seed := uint16(0)
	if t.Ones {
		seed = 0xFFFF
	}
	for i := 0; i < len(blocks); i += BlockSize {
		block := blocks[i:][:BlockSize]
		units = append(units, block...)
		units = binary.BigEndian.AppendUint64(units, uint64(ref.T10DIF(seed, block))<<48|t.From(uint64(i/BlockSize)).Tag)
	}
	return units
}

// put copies pieces of size bytes to their places in memory.
func (s *scene) put(memory, b []byte, size int) {
	for i := range s.run.N {
		at := uintptr(unsafe.Pointer(s.run.Places[i])) - uintptr(unsafe.Pointer(unsafe.SliceData(s.memory)))
		copy(memory[at:], b[i*size:][:size])
	}
}

// TestPlainTwin compares runs of every length, in every pass and with either side in
// memory, with the plain Go code of both steps.
func TestPlainTwin(t *testing.T) {
	if !Available() {
		if cpu.Best() == cpu.AVX512 {
			t.Fatal("this machine has a kernel, and it is not available")
		}
		return
	}
	eachKernel(t, func(t *testing.T, pass Pass, size int, shifts bool) {
		r := rand.New(rand.NewPCG(1, uint64(size)))
		raw := randomBytes(r, size)
		twin := aesxts.New(cpu.Generic, make([]byte, aesxts.MemorySize), raw)
		keys := newSchedule(raw)
		keys.Shifts = shifts
		for n := 1; n <= MaxUnits; n++ {
			if testing.Short() && n > 12 && n%40 != 0 && n != MaxUnits {
				continue
			}
			s := newScene(r, &twin, pass, n)
			s.from(t, keys)
			s.to(t, keys)
			s.faults(t, r, keys)
		}
	})
}

// eachKernel runs f for each pass with each size of keys, in both sets of kernels.
func eachKernel(t *testing.T, f func(t *testing.T, pass Pass, size int, shifts bool)) {
	for _, size := range []int{32, 64} {
		for name, pass := range passes {
			for _, shifts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%s/shifts=%v", size*4, name, shifts), func(t *testing.T) { f(t, pass, size, shifts) })
			}
		}
	}
}

// guarded returns n bytes with a margin on either side.
func guarded(n int) (room, all []byte) {
	all = bytes.Repeat([]byte{0xEE}, n+128)
	return all[64 : 64+n : 64+n], all
}

func (s *scene) from(t *testing.T, keys *Schedule) {
	s.put(s.memory, s.in, s.pass.InSize())
	got, all := guarded(s.run.N * s.pass.OutSize())
	if diff := s.run.From(keys, &s.pass, got); diff != 0 {
		t.Fatalf("from memory: sound fields differ: %#x", diff)
	}
	s.same(t, "from memory", got, s.out, s.pass.OutSize())
	untouched(t, all)
	if s.fields != nil {
		s.same(t, "fields", bytes.Join(slicesOf(s.run.Fields[:s.run.N]), nil), s.fields, FieldSize)
	}
}

func (s *scene) to(t *testing.T, keys *Schedule) {
	want := bytes.Clone(s.memory)
	s.put(want, s.out, s.pass.OutSize())
	if diff := s.run.To(keys, &s.pass, s.in); diff != 0 {
		t.Fatalf("to memory: sound fields differ: %#x", diff)
	}
	s.same(t, "to memory", s.memory, want, len(want))
}

// faults checks that a wrong tag, guard or bit in any unit is reported, and nothing
// outside of the mask.
func (s *scene) faults(t *testing.T, r *rand.Rand, keys *Schedule) {
	got, _ := guarded(s.run.N * s.pass.OutSize())
	for range 4 {
		s.put(s.memory, s.in, s.pass.InSize())
		bad := s.pass
		switch r.IntN(3) {
		case 0:
			bad.In.Tag ^= 1 << r.IntN(48)
			bad.Mask = 0xFFFFFFFFFFFF0000
		case 1:
			bad.In.Ones = !bad.In.Ones
			bad.Mask = 0xFFFF
		case 2:
			unit := unsafe.Slice(s.run.Places[r.IntN(s.run.N)], s.pass.InSize())
			unit[r.IntN(len(unit))] ^= 1 << r.IntN(8)
		}
		if diff := s.run.From(keys, &bad, got); (diff == 0) == s.pass.Check || diff&^bad.Mask != 0 {
			t.Errorf("a fault was not seen: %#x", diff)
		}
		bad.Mask = 0
		if diff := s.run.From(keys, &bad, got); diff != 0 {
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
	seal, open := passes["seal"], passes["open"]
	for name, f := range map[string]func(){
		"more units than fit": func() { (&Run{N: MaxUnits + 1}).From(nil, &seal, make([]byte, (MaxUnits+1)*UnitSize)) },
		"a negative number":   func() { (&Run{N: -1}).From(nil, &seal, nil) },
		"units":               func() { (&Run{N: 2}).From(nil, &seal, make([]byte, 2*UnitSize-1)) },
		"blocks":              func() { (&Run{N: 2}).To(nil, &seal, make([]byte, 2*BlockSize-1)) },
		"blocks to write":     func() { (&Run{N: 2}).From(nil, &open, make([]byte, 2*BlockSize-1)) },
		"units to read":       func() { (&Run{N: 2}).To(nil, &open, make([]byte, 2*UnitSize-1)) },
		"no pass":             func() { (&Run{N: 2}).From(nil, &Pass{}, make([]byte, 2*UnitSize)) },
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
	(&Run{}).From(nil, &seal, nil)
	(&Run{}).To(nil, &open, nil)
}

// BenchmarkRun also measures AES-XTS alone, for comparison.
func BenchmarkRun(b *testing.B) {
	if !Available() {
		return
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{32, 64} {
		raw := randomBytes(r, size)
		key := aesxts.New(cpu.AVX512, make([]byte, aesxts.MemorySize), raw)
		keys := (*Schedule)(key.Schedule())
		const n = MaxUnits
		out := make([]byte, n*UnitSize)
		bench := func(name string, f func()) {
			b.Run(fmt.Sprintf("%d/%s", size*4, name), func(b *testing.B) {
				b.SetBytes(int64(n * BlockSize))
				for b.Loop() {
					f()
				}
			})
		}
		for name, pass := range passes {
			s := newScene(r, &key, pass, n)
			bench(name+"/from", func() { s.run.From(keys, &s.pass, out) })
			bench(name+"/to", func() { s.run.To(keys, &s.pass, s.in) })
		}
		in := randomBytes(r, n*UnitSize)
		for _, unit := range []int{BlockSize, UnitSize} {
			bench(fmt.Sprint("encrypt alone/", unit), func() { key.Crypt(false, out, unit, in, unit, unit, n, 1, 0) })
			bench(fmt.Sprint("decrypt alone/", unit), func() { key.Crypt(true, out, unit, in, unit, unit, n, 1, 0) })
		}
	}
}
