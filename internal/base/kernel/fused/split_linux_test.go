package fused

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

// edges is memory in pages that are separated by pages without access, so that an access
// outside of a page faults.
type edges struct {
	memory []byte
	page   int
}

func newEdges(t *testing.T, pages int) *edges {
	t.Helper()
	e := &edges{page: os.Getpagesize()}
	var err error
	e.memory, err = unix.Mmap(-1, 0, (2*pages+1)*e.page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(e.memory) })
	for i := range pages + 1 {
		if err := unix.Mprotect(e.memory[2*i*e.page:][:e.page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// end returns the last n bytes of a page, begin the first n bytes.
func (e *edges) end(i, n int) []byte {
	at := (2*i + 2) * e.page
	return e.memory[at-n : at : at]
}

func (e *edges) begin(i, n int) []byte {
	at := (2*i + 1) * e.page
	return e.memory[at : at+n : at+n]
}

// fill sets a page to the bytes for which untouched checks.
func (e *edges) fill(i int) {
	p := e.begin(i, e.page)
	for i := range p {
		p[i] = 0xEE
	}
}

func (e *edges) untouched(t *testing.T, b []byte) {
	t.Helper()
	if bytes.Count(b, []byte{0xEE}) != len(b) {
		t.Fatal("wrote elsewhere")
	}
}

// TestSplits compares runs with split units or blocks with runs of whole ones. Each piece
// ends or begins at a page without access. The other bytes of the pages must not change.
func TestSplits(t *testing.T) {
	if !Available() {
		return
	}
	pages := newEdges(t, 2*MaxSplits)
	eachKernel(t, func(t *testing.T, pass Pass, size int, shifts bool) {
		r := rand.New(rand.NewPCG(2, uint64(size)))
		raw := randomBytes(r, size)
		key := aesxts.New(cpu.AVX512, make([]byte, aesxts.MemorySize), raw)
		keys := newSchedule(raw)
		keys.Shifts = shifts
		for _, n := range []int{1, 2, 3, 8, 9, 10, 17, 40, MaxUnits} {
			for range 2 {
				s := splitScene{scene: newScene(r, &key, pass, n), pages: pages, r: r}
				s.run(t, keys)
			}
		}
	})
}

type splitScene struct {
	*scene
	pages *edges
	r     *rand.Rand
	rooms [MaxSplits][UnitSize]byte
}

func (s *splitScene) run(t *testing.T, keys *Schedule) {
	run, p := &s.scene.run, &s.pass
	sound := func(diff uint64) {
		if diff != 0 {
			t.Fatalf("sound fields differ: %#x", diff)
		}
	}
	out := make([]byte, len(s.out))
	s.split(t, s.in, p.InSize(), func() { sound(run.From(keys, p, out)) })
	s.same(t, "from memory", out, s.out, p.OutSize())
	zeros := make([]byte, len(s.out))
	s.same(t, "to memory", s.split(t, zeros, p.OutSize(), func() { sound(run.To(keys, p, s.in)) }), s.out, p.OutSize())
}

// split puts the units of line, of size bytes, in the run, calls f, and returns the run's
// units afterwards.
func (s *splitScene) split(t *testing.T, line []byte, size int, f func()) []byte {
	n := s.scene.run.N
	run := &s.scene.run
	run.Reset()
	run.N = n
	whole := bytes.Clone(line[:n*size])
	type pieces struct {
		unit  int
		parts [2][]byte
	}
	var all []pieces
	for i := range n {
		unit := whole[i*size:][:size]
		run.Places[i] = &unit[0]
		if len(all) == MaxSplits || s.r.IntN(3) != 0 {
			continue
		}
		cut := 1 + s.r.IntN(size-1)
		switch s.r.IntN(4) {
		case 0:
			cut = 1 + s.r.IntN(70)
		case 1:
			cut = size - 1 - s.r.IntN(70)
		}
		k := len(all)
		p := pieces{i, [2][]byte{s.pages.end(2*k, cut), s.pages.begin(2*k+1, size-cut)}}
		s.pages.fill(2 * k)
		s.pages.fill(2*k + 1)
		copy(p.parts[0], unit)
		copy(p.parts[1], unit[cut:])
		run.Split(i, &s.rooms[k][0], p.parts[0], p.parts[1])
		all = append(all, p)
	}
	f()
	for k, p := range all {
		unit := whole[p.unit*size:][:size]
		copy(unit[copy(unit, p.parts[0]):], p.parts[1])
		s.pages.untouched(t, s.pages.begin(2*k, s.pages.page-len(p.parts[0])))
		s.pages.untouched(t, s.pages.end(2*k+1, s.pages.page-len(p.parts[1])))
	}
	return whole
}
