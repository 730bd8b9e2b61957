package mkey_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// TestOracle compares both directions of random keys with the oracle.
func TestOracle(t *testing.T) {
	count := 4000
	switch {
	case long:
		count = 110_000 // including job sizes that AES-XTS cannot process
	case testing.Short():
		count = 300
	}
	refused := 0
	for seed := range uint64(count) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if !compare(t, seed) {
				refused++
			}
		})
		if !ok {
			break
		}
	}
	t.Logf("%d random keys agree with the oracle in both directions; %d more had job sizes that AES-XTS cannot do", count-refused, refused)
	t.Logf("%d ranges in the middle of their streams agree; %d more were refused by both", ranges.compared, ranges.refused)
}

// scene is a random key with memory, and matching streams.
type scene struct {
	r      *rand.Rand
	oracle mkeytest.Oracle
	key    *mkey.Key
	layout *mkey.Key // reaches the memory domain without signature or crypto
	total  uint64
}

// dump returns the memory domain.
func (s *scene) dump(t *testing.T) []byte {
	t.Helper()
	return send(t, s.layout, 0, s.total)
}

// compare tests one random key. It returns false if the job size was refused.
func compare(t *testing.T, seed uint64) bool {
	r := rand.New(rand.NewPCG(seed, 2))
	s := &scene{r: r}
	if r.IntN(5) > 0 {
		s.oracle.Signature = mkeytest.RandomSignature(r)
	}
	if r.IntN(2) > 0 {
		s.oracle.Crypto, s.oracle.Cipher = mkeytest.RandomCrypto(r, s.oracle.Signature)
	}

	// Correct streams for both domains, from the same data.
	data := make([]byte, r.IntN(pick(r, 6_000, 6_000, 30_000)))
	if r.IntN(4) == 0 {
		data = make([]byte, 4160*r.IntN(6))
	}
	if r.IntN(3) == 0 {
		s.oracle.Signature, s.oracle.Crypto, s.oracle.Cipher = mkeytest.RandomRow(r)
		data = make([]byte, 512*r.IntN(50)+pick(r, 0, 0, r.IntN(512)))
	}
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	memory, wire := s.streams(data)
	mkeytest.Flip(r, memory, r.IntN(4))
	mkeytest.Flip(r, wire, r.IntN(4))

	s.total = uint64(len(memory))
	layout, _ := mkeytest.RandomLayout(r, len(memory), 64)
	s.layout = newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: layout})
	var err error
	s.key, err = mkey.New(mkey.KeyConfig{
		Access: rdma.LocalWrite, Layout: layout,
		Signature: s.oracle.Signature, Crypto: s.oracle.Crypto,
	})
	if err != nil {
		t.Fatalf("%v\nsignature %+v crypto %+v", err, s.oracle.Signature, s.oracle.Crypto)
	}
	receive(t, s.layout, 0, memory)
	ok := s.compareTX(t, memory)
	for range 2 {
		s.compareTXAt(t, memory, s.pickRange(len(wire)))
	}
	s.compareRX(t, wire)
	for range 2 {
		s.compareRXAt(t, wire, s.pickRange(len(wire)))
	}
	return ok
}

// ranges counts ranges in the middle of a stream: those that were compared, and those
// that both sides refused.
var ranges struct{ compared, refused int }

type span struct{ offset, length int }

// pickRange returns a range of a wire domain of n bytes. In most cases its offset is
// valid, or nearly so; its end is arbitrary.
func (s *scene) pickRange(n int) span {
	r := s.r
	w := span{offset: r.IntN(n + 1)}
	if r.IntN(16) > 0 {
		for w.offset > 0 {
			if _, _, _, ok := s.oracle.Range(w.offset, 0); ok {
				break
			}
			w.offset--
		}
	}
	w.length = r.IntN(n - w.offset + 1)
	if r.IntN(2) == 0 {
		// At the end of a block or of its data, or close to it.
		for end := w.offset + w.length; end > w.offset && r.IntN(4) > 0; end-- {
			if _, _, _, ok := s.oracle.Range(end, 0); ok {
				w.length = max(0, end-w.offset-r.IntN(9))
				break
			}
		}
	}
	if r.IntN(64) == 0 {
		w.length += r.IntN(5000) // beyond the end
	}
	for w.length > 0 && s.oracle.Crypto != nil && r.IntN(600) > 0 && !s.job(w) {
		w.length--
	}
	return w
}

// job reports whether AES-XTS can process a range.
func (s *scene) job(w span) bool {
	n, c := w.length, s.oracle.Crypto
	if s.oracle.Signature == nil || c.Order == mkey.SignatureAfterCrypto {
		_, from, to, _ := s.oracle.Range(w.offset, w.length)
		n = to - from
	}
	rest := n % c.DataUnitSize
	return rest == 0 || n%16 == 0 && rest >= 16 && rest <= c.DataUnitSize-16
}

// refused checks that a range which the oracle refuses, or which is out of bounds,
// returns an error.
func (s *scene) refused(t *testing.T, dir string, w span, ok bool, err error) bool {
	_, _, to, legal := s.oracle.Range(w.offset, w.length)
	outside := uint64(to) > s.total
	if legal && ok && !outside {
		if err != nil {
			t.Errorf("%s %+v: %v", dir, w, err)
		}
		return err != nil
	}
	ranges.refused++
	switch {
	case err == nil:
		t.Errorf("%s %+v: to be refused (legal %v, job %v, outside %v)", dir, w, legal, ok, outside)
	case legal && !outside && !errors.Is(err, syscall.EMSGSIZE):
		t.Errorf("%s %+v: a job size that AES-XTS cannot do: %v", dir, w, err)
	case !errors.Is(err, syscall.EFAULT) && !errors.Is(err, syscall.EMSGSIZE):
		t.Errorf("%s %+v: %v", dir, w, err)
	}
	return true
}

func (s *scene) compareTXAt(t *testing.T, memory []byte, w span) {
	var want []byte
	var bad []sig.Error
	_, _, to, legal := s.oracle.Range(w.offset, w.length)
	ok := legal
	if legal && to <= len(memory) {
		want, bad, ok = s.oracle.TXAt(memory, w.offset, w.length)
	}
	tx, err := s.key.NewReader(int64(w.offset), int64(w.length))
	if err == nil {
		defer tx.Close()
	}
	if s.refused(t, "TX", w, ok, err) {
		return
	}
	ranges.compared++
	got := make([]byte, len(want))
	for off := 0; off < len(got); {
		n := min(len(got)-off, 1+s.r.IntN(pickSize(s.r)))
		if _, err := tx.ReadAt(got[off:off+n], int64(off)); err != nil {
			t.Fatalf("TX %+v read %d+%d: %v", w, off, n, err)
		}
		off += n
	}
	if !bytes.Equal(got, want) {
		t.Errorf("TX %+v: differs at %d\nsignature %+v\ncrypto %+v", w, differ(got, want), s.oracle.Signature, s.oracle.Crypto)
	}
	s.compareBad(t, fmt.Sprintf("TX %+v", w), tx.Bad(), bad, mkey.MemoryDomain)
}

// compareRXAt writes the bytes of a range of wire through RX or, as a message shorter
// than announced, through RXUpTo.
func (s *scene) compareRXAt(t *testing.T, wire []byte, w span) {
	if w.offset+w.length > len(wire) {
		wire = append(bytes.Clone(wire), make([]byte, w.offset+w.length-len(wire))...)
	}
	wire = wire[w.offset : w.offset+w.length]
	want := s.dump(t)
	_, _, to, legal := s.oracle.Range(w.offset, w.length)
	ok := legal
	var bad []sig.Error
	if legal && to <= len(want) {
		bad, ok = s.oracle.RXAt(want, w.offset, wire)
	}
	var rx keydoor.RX
	var err error
	if up := s.r.IntN(2) == 0 && ok; up {
		size, _ := s.key.WireLen()
		room := uint64(size)
		room -= min(room, uint64(w.offset))
		rx, err = keydoor.Of(s.key).RXUpTo(uint64(w.offset), max(uint64(w.length), room-s.r.Uint64N(room/2+1)))
	} else {
		rx, err = keydoor.Of(s.key).RX(uint64(w.offset), uint64(w.length))
	}
	if err == nil {
		defer rx.Close()
	}
	if s.refused(t, "RX", w, ok, err) {
		return
	}
	ranges.compared++
	for left := wire; len(left) > 0; {
		n := min(len(left), 1+s.r.IntN(pickSize(s.r)))
		if err := write(rx, left[:n], s.r.IntN(4) > 0); err != nil {
			t.Fatalf("RX %+v write: %v", w, err)
		}
		left = left[n:]
	}
	if err := rx.Finish(); err != nil {
		t.Fatalf("RX %+v finish: %v", w, err)
	}
	if got := s.dump(t); !bytes.Equal(got, want) {
		t.Errorf("RX %+v: differs at %d\nsignature %+v\ncrypto %+v", w, differ(got, want), s.oracle.Signature, s.oracle.Crypto)
	}
	s.compareBad(t, fmt.Sprintf("RX %+v", w), rx.Bad(), bad, mkey.WireDomain)
}

// streams returns the memory and the wire domain of data.
func (s *scene) streams(data []byte) (memory, wire []byte) {
	protect := func(f *sig.Format) []byte {
		if f == nil {
			return append([]byte(nil), data...)
		}
		o := mkeytest.Oracle{Signature: &mkey.Signature{Wire: f}}
		out, _, _ := o.TX(data)
		return out
	}
	var m, w *sig.Format
	if s.oracle.Signature != nil {
		m, w = s.oracle.Signature.Memory, s.oracle.Signature.Wire
	}
	c := s.oracle.Crypto
	if c == nil {
		return protect(m), protect(w)
	}
	crypt := mkeytest.Oracle{Crypto: c, Cipher: s.oracle.Cipher}
	inMemory := s.oracle.Signature == nil || c.Order == mkey.SignatureAfterCrypto
	encrypted := w
	if inMemory {
		encrypted = m
	}
	// In most cases, data of a length that AES-XTS can process.
	for s.r.IntN(50) > 0 {
		n := len(data)
		if encrypted != nil {
			n += n / encrypted.BlockSize * encrypted.FieldSize()
		}
		if rest := n % c.DataUnitSize; rest == 0 || n%16 == 0 && rest >= 16 && rest <= c.DataUnitSize-16 {
			break
		}
		data = data[:len(data)-1]
	}
	memory, wire = protect(m), protect(w)
	if inMemory {
		if sound, _, ok := crypt.RX(memory); ok {
			memory = sound
		}
	} else if sound, _, ok := crypt.TX(wire); ok {
		wire = sound
	}
	return memory, wire
}

func (s *scene) compareTX(t *testing.T, memory []byte) bool {
	r := s.r
	want, bad, ok := s.oracle.TX(memory)
	if !ok {
		plain := mkeytest.Oracle{Signature: s.oracle.Signature}
		wire, _, _ := plain.TX(memory)
		if _, err := s.key.NewReader(0, int64(len(wire))); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("TX: a job size that AES-XTS cannot do: %v", err)
		}
		return false
	}
	tx, err := s.key.NewReader(0, int64(len(want)))
	if err != nil {
		t.Fatalf("TX: %v", err)
	}
	defer tx.Close()
	got := make([]byte, len(want))
	for off := 0; off < len(got); {
		n := min(len(got)-off, 1+r.IntN(pickSize(r)))
		if _, err := tx.ReadAt(got[off:off+n], int64(off)); err != nil {
			t.Fatalf("TX read %d+%d: %v", off, n, err)
		}
		if off += n; r.IntN(8) == 0 {
			off -= r.IntN(off + 1) // a retransmission
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("TX: differs at %d of %d\nsignature %+v\ncrypto %+v", differ(got, want), len(want), s.oracle.Signature, s.oracle.Crypto)
	}
	s.compareBad(t, "TX", tx.Bad(), bad, mkey.MemoryDomain)
	return true
}

func (s *scene) compareRX(t *testing.T, wire []byte) {
	r := s.r
	want, bad, ok := s.oracle.RX(wire)
	before := s.dump(t)
	exact, err := keydoor.Of(s.key).RX(0, uint64(len(wire)))
	if err == nil {
		exact.Close()
	}
	if !ok || errors.Is(err, syscall.EFAULT) && uint64(len(want)) > s.total {
		if err == nil || ok != errors.Is(err, syscall.EFAULT) {
			t.Errorf("RX: to be refused, and answers %v", err)
		}
		if !bytes.Equal(before, s.dump(t)) {
			t.Error("RX: refused, and memory has changed")
		}
		return
	} else if err != nil {
		t.Fatalf("RX: %v", err)
	}
	rx := must(s.key.NewWriter(0, int64(len(wire))))
	defer rx.Close()
	for left := wire; len(left) > 0; {
		n := min(len(left), 1+r.IntN(pickSize(r)))
		if _, err := rx.Write(left[:n]); err != nil {
			t.Fatalf("RX write: %v", err)
		}
		left = left[n:]
	}
	if err := rx.Finish(); err != nil {
		t.Fatalf("RX finish: %v", err)
	}
	got := s.dump(t)
	if !bytes.Equal(got[:len(want)], want) {
		t.Errorf("RX: differs at %d of %d\nsignature %+v\ncrypto %+v", differ(got, want), len(want), s.oracle.Signature, s.oracle.Crypto)
	}
	if !bytes.Equal(got[len(want):], before[len(want):]) {
		t.Errorf("RX: wrote behind its %d bytes", len(want))
	}
	s.compareBad(t, "RX", rx.Bad(), bad, mkey.WireDomain)
}

func (s *scene) compareBad(t *testing.T, dir string, count int, want []sig.Error, d mkey.Domain) {
	if count != len(want) {
		t.Errorf("%s: %d bad blocks, want %d", dir, count, len(want))
	}
	if s.oracle.Signature == nil {
		return
	}
	got, err := s.key.Check()
	switch {
	case err != nil:
		t.Error(err)
	case (got != nil) != (len(want) > 0):
		t.Errorf("%s: check answers %v, want %v", dir, got, want)
	case got != nil && (got.Sig != want[0] || got.Domain != d):
		t.Errorf("%s: check answers %v, want %+v", dir, got, want[0])
	}
	if again, _ := s.key.Check(); again != nil {
		t.Errorf("%s: asking does not clear: %v", dir, again)
	}
}

// pickSize returns the largest size of the pieces of a transfer.
func pickSize(r *rand.Rand) int { return pick(r, 17, 600, 5000, 100_000) }

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }
