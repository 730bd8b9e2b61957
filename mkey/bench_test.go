package mkey_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// job is a key with a transfer of data bytes, and the single steps of that transfer.
type job struct {
	data int // payload bytes, on which rates are based
	s    *mkey.Signature
	c    *mkey.Crypto
	key  *mkey.Key
	wire []byte
}

func newJob(b *testing.B, data int, layout func(n int) mkey.Layout, s *mkey.Signature, c *mkey.Crypto) *job {
	memory, wire := data, data
	if s != nil {
		memory, wire = streamLen(s.Memory, data), streamLen(s.Wire, data)
	}
	j := &job{data: data, s: s, c: c, wire: make([]byte, wire)}
	j.key = newKey(b, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: layout(memory), Signature: s, Crypto: c})
	if s != nil && s.Wire != nil && c == nil {
		copy(j.wire, mkeytest.Protect(s.Wire, pattern(data))) // the fields may be copied to memory
	}
	j.rx(b, len(j.wire)) // arbitrary bytes
	j.tx(b, len(j.wire))
	j.rx(b, len(j.wire)) // correct ones
	j.tx(b, len(j.wire))
	j.key.Check()
	j.tx(b, len(j.wire))
	if bad, _ := j.key.Check(); bad != nil {
		b.Fatal(bad)
	}
	return j
}

// streamLen returns the length of the complete blocks in n bytes of data, with their fields if f is not nil.
func streamLen(f *sig.Format, n int) int {
	if f == nil {
		return n
	}
	return n / f.Block() * f.Stride()
}

func (j *job) tx(b *testing.B, piece int) { sendPieces(b, j.key, j.wire, piece) }
func (j *job) rx(b *testing.B, piece int) { receivePieces(b, j.key, j.wire, piece) }

// steps returns the single steps of one direction, each over contiguous memory of the
// same size as in the row.
func (j *job) steps(b *testing.B, rx bool) map[string]func() {
	steps := make(map[string]func())
	if j.s != nil {
		in, out := j.s.Memory, j.s.Wire
		if rx {
			in, out = out, in
		}
		c := sig.TransformConfig{CheckMask: j.s.CheckMask}
		if in != nil {
			c.In = *in
		}
		if out != nil {
			c.Out = *out
		}
		t := must(sig.NewTransform(c))
		n := j.data / t.BlockSize()
		src, dst := make([]byte, n*t.In().Stride()), make([]byte, n*t.Out().Stride())
		if in != nil {
			noErr(b, in.Generate(src))
		}
		steps["signature"] = func() { t.Run(sig.Interleaved(t.Out(), dst), sig.Interleaved(t.In(), src), n, 0, nil) }
	}
	if j.c != nil {
		var f *sig.Format
		if j.s != nil && j.c.Order == mkey.SignatureBeforeCrypto {
			f = j.s.Wire
		} else if j.s != nil {
			f = j.s.Memory
		}
		n := streamLen(f, j.data)
		src, dst := make([]byte, n), make([]byte, n)
		steps["crypto"] = func() {
			if j.c.EncryptOnTX != rx {
				cipher.Encrypt(dst, src, j.c.DataUnitSize, xts.Tweak{})
			} else {
				cipher.Decrypt(dst, src, j.c.DataUnitSize, xts.Tweak{})
			}
		}
	}
	return steps
}

var layouts = []struct {
	name string
	of   func(n int) mkey.Layout
}{
	{"contiguous", func(n int) mkey.Layout { return over(make([]byte, n)) }},
	{"scattered4K", func(n int) mkey.Layout { return scattered(n, 4096) }},
}

func bench(b *testing.B, name string, j *job, f func()) {
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(j.data))
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
}

// BenchmarkRows measures every row of the table in both directions, over contiguous
// memory and over scattered segments of 4 KiB, in one call and in packets. It also
// measures the single steps.
func BenchmarkRows(b *testing.B) {
	for _, data := range []int{4096, 64 << 10, 1 << 20} {
		for _, r := range rows() {
			for i, l := range layouts {
				j := newJob(b, data, l.of, r.s, r.c)
				for dir, rx := range map[string]bool{"TX": false, "RX": true} {
					name := fmt.Sprintf("%s/%s/%d/", r.name, dir, data)
					whole := j.tx
					if rx {
						whole = j.rx
					}
					if i == 0 {
						for step, f := range j.steps(b, rx) {
							bench(b, name+step+"Alone", j, f)
						}
					}
					bench(b, name+l.name, j, func() { whole(b, len(j.wire)) })
					if data == 64<<10 {
						bench(b, name+l.name+"Packets4096", j, func() { whole(b, 4096) })
						bench(b, name+l.name+"Packets1024", j, func() { whole(b, 1024) })
					}
				}
			}
		}
	}
}

// BenchmarkSignatures measures pairs of signatures without crypto.
func BenchmarkSignatures(b *testing.B) {
	crc4096 := &sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	for _, p := range []struct {
		name      string
		mem, wire *sig.Format
	}{
		{"none", nil, nil},
		{"wireT10", nil, t10},
		{"memT10", t10, nil},
		{"bothT10", t10, t10},
		{"T10toCRC64", t10, crc64},
		{"wireT10x4096", nil, &sigT10x4096},
		{"memCRC32Cx4096", crc4096, nil},
		{"T10toCRC32Cx4096", t10, crc4096},
		{"CRC32Cx4096toT10", crc4096, t10},
	} {
		var s *mkey.Signature
		if p.mem != nil || p.wire != nil {
			s = &mkey.Signature{Memory: p.mem, Wire: p.wire}
		}
		for _, l := range layouts {
			j := newJob(b, 64<<10, l.of, s, nil)
			for dir, whole := range map[string]func(*testing.B, int){"TX": j.tx, "RX": j.rx} {
				bench(b, fmt.Sprintf("%s/%s/%s", p.name, dir, l.name), j, func() { whole(b, len(j.wire)) })
				bench(b, fmt.Sprintf("%s/%s/%s/Packets4096", p.name, dir, l.name), j, func() { whole(b, 4096) })
			}
		}
	}
}

// BenchmarkFraction compares a row with the slower of its two steps. The three are
// measured alternately, so that other load on the machine affects them equally. The
// metric "fraction" is the rate of the row divided by the rate of that step.
func BenchmarkFraction(b *testing.B) {
	for _, data := range []int{64 << 10, 256 << 10, 1 << 20} {
		for _, r := range rows() {
			if r.s == nil {
				continue
			}
			j := newJob(b, data, layouts[1].of, r.s, r.c)
			for dir, rx := range map[string]bool{"TX": false, "RX": true} {
				b.Run(fmt.Sprintf("%s/%s/%d", r.name, dir, data), func(b *testing.B) {
					whole := j.tx
					if rx {
						whole = j.rx
					}
					steps := j.steps(b, rx)
					var times [3][]time.Duration
					for b.Loop() {
						for i, f := range []func(){steps["signature"], steps["crypto"], func() { whole(b, len(j.wire)) }} {
							begin := time.Now()
							f()
							times[i] = append(times[i], time.Since(begin))
						}
					}
					var median [3]float64
					for i, t := range times {
						slices.Sort(t)
						median[i] = float64(t[len(t)/2])
					}
					b.ReportMetric(float64(data)/median[0], "sigGB/s")
					b.ReportMetric(float64(data)/median[1], "xtsGB/s")
					b.ReportMetric(float64(data)/median[2], "rowGB/s")
					b.ReportMetric(max(median[0], median[1])/median[2], "fraction")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// BenchmarkOpen measures the fixed cost of a stream: it is opened, 8 bytes are read or
// written, and it is closed.
func BenchmarkOpen(b *testing.B) {
	memory := make([]byte, 4096)
	k := must(mkey.New(mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: mkey.Bytes(memory), Length: 4096}}}))
	var p [8]byte
	b.Run("TX", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := must(k.NewReader(0, 8))
			must(t.ReadAt(p[:], 0))
			t.Close()
		}
	})
	b.Run("RX", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := must(k.NewWriter(0, 8))
			must(r.Write(p[:]))
			r.Close()
		}
	})
}
