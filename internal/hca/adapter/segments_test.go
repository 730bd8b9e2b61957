package adapter

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// flat is memory from address 0 on. With mapped, its ranges can be shared.
type flat struct {
	bytes  []byte
	mapped bool
}

func (m *flat) at(addr uint64, n int) ([]byte, error) {
	if addr > uint64(len(m.bytes)) || uint64(n) > uint64(len(m.bytes))-addr {
		return nil, syscall.EFAULT
	}
	return m.bytes[addr:][:n], nil
}

func (m *flat) Read(addr uint64, dst []byte) error {
	b, err := m.at(addr, len(dst))
	copy(dst, b)
	return err
}

func (m *flat) Write(addr uint64, src []byte) error {
	b, err := m.at(addr, len(src))
	copy(b, src)
	return err
}

func (m *flat) ReadV(v []Vec) (err error) {
	for i := range v {
		if err = m.Read(v[i].Addr, v[i].Buf); err != nil {
			return err
		}
	}
	return nil
}

func (m *flat) WriteV(v []Vec) (err error) {
	for i := range v {
		if err = m.Write(v[i].Addr, v[i].Buf); err != nil {
			return err
		}
	}
	return nil
}

func (m *flat) Map(addr uint64, n int) []byte {
	if !m.mapped {
		return nil
	}
	b, _ := m.at(addr, n)
	return b
}

// TestSegments reads and writes a buffer that lies in pieces of two memories, one of which is
// shared, and compares it with a slice.
func TestSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		copied, shared := &flat{bytes: make([]byte, 1<<14)}, &flat{bytes: make([]byte, 1<<14), mapped: true}
		var s Segments
		var at [2]uint64
		for range 1 + rng.IntN(12) {
			which := rng.IntN(2)
			n := uint64(4 * (1 + rng.IntN(100)))
			at[which] += uint64(8 * rng.IntN(10))
			at[which] = (at[which] + 7) &^ 7
			s = append(s, Segment{[]Memory{copied, shared}[which], at[which], n})
			at[which] += n
		}
		skip := uint64(4 * rng.IntN(int(s.Len()/4)))
		size := int(s.Len() - skip)
		want := make([]byte, size)
		var b buffer
		fatal.If(t, b.open("test", "the buffer", s.From(skip), size))
		for range 200 {
			off := 4 * rng.IntN(size/4)
			n := min(4*(1+rng.IntN(64)), size-off)
			data := make([]byte, n)
			switch op := rng.IntN(4); op {
			case 0, 1:
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				write := []func(int, []byte) error{b.write, b.publish}[op]
				fatal.If(t, write(off, data))
				copy(want[off:], data)
			case 2:
				if err := b.read(off, data); err != nil || !bytes.Equal(data, want[off:][:n]) {
					t.Fatalf("%d bytes at %d of %v: %v", n, off, s, err)
				}
			default:
				if v, err := b.load32(off); err != nil || v != binary.BigEndian.Uint32(want[off:]) {
					t.Fatalf("word at %d of %v: %#x, %v", off, s, v, err)
				}
			}
		}
		if err := b.open("test", "the buffer", s.From(skip), size+1); err == nil {
			t.Fatal("a buffer longer than its memory")
		}
	}
}

// TestPages makes segments of pages: neighbours become one.
func TestPages(t *testing.T) {
	m := &flat{}
	s := Pages(m, 12, []uint64{0x5000, 0x6000, 0x2000, 0x3000, 0x9000})
	if len(s) != 3 || s.Len() != 5<<12 || s[1].Addr != 0x2000 || s[1].Len != 0x2000 {
		t.Errorf("%+v", s)
	}
	if rest := s.From(0x2800); rest[0].Addr != 0x2800 || rest.Len() != 0x2800 {
		t.Errorf("from 0x2800: %+v", rest)
	}
	if s.From(5<<12) != nil {
		t.Error("memory behind the end")
	}
}

// TestConsumerIndex reads consumer indexes of 16 and 24 bits.
func TestConsumerIndex(t *testing.T) {
	for _, entries := range []uint32{1, 64, 1 << 15} {
		q := &CQ{entries: entries, producer: 3<<24 + 5}
		for held := range min(entries, 100) + 1 {
			ci := q.producer - held
			for _, mask := range []uint32{0xffff, 0xffffff, 0xffffffff} {
				if got := q.behind(ci & mask); got != held {
					t.Errorf("%d entries, index %#x: %d behind, want %d", entries, ci&mask, got, held)
				}
			}
		}
	}
}

// TestSpace: each message asks a region for its memory. The spaces of two regions of one program are equal, so that
// one system call reads from both, and the answer takes no memory.
func TestSpace(t *testing.T) {
	mem := new(flat)
	a, b := keydoor.Copied(programMemoryOf(mem)), keydoor.Copied(programMemoryOf(mem))
	x, _, _ := a.Space(0, 1, 0)
	y, _, _ := b.Space(0, 1, 0)
	if x != y {
		t.Error("two regions of one memory have different spaces")
	}
	if n := testing.AllocsPerRun(100, func() { x, _, _ = a.Space(0, 1, 0) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
