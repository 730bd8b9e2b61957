package mkey_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// formats returns no signature, and each block size with a field of 4 and of 8 bytes.
func formats() []*sig.Format {
	fs := []*sig.Format{nil}
	for _, size := range sig.KeyBlockSizes() {
		fs = append(fs, &sig.Format{Type: sig.CRC32C, BlockSize: size}, &sig.Format{Type: sig.T10DIF, BlockSize: size})
	}
	return fs
}

// shapes calls f for every pair of formats and every allowed form of crypto.
func shapes(f func(s *mkey.Signature, c *mkey.Crypto)) {
	for _, mem := range formats() {
		for _, wire := range formats() {
			var s *mkey.Signature
			if mem != nil || wire != nil {
				s = &mkey.Signature{Memory: mem, Wire: wire}
			}
			f(s, nil)
			for _, unit := range sig.KeyBlockSizes() {
				f(s, crypto(true, mkey.SignatureBeforeCrypto, unit))
				if s == nil || wire == nil || mem == nil {
					f(s, crypto(mem == nil, mkey.SignatureAfterCrypto, unit))
				}
				if mem != nil && wire != nil {
					f(s, crypto(false, mkey.SignatureAfterCrypto, unit))
				}
			}
		}
	}
}

// TestOffsets checks that a transfer can begin at a block and data unit, and is refused
// elsewhere before any memory is accessed. The error names the number of which the offset
// must be a multiple.
func TestOffsets(t *testing.T) {
	legal, illegal := 0, 0
	shapes(func(s *mkey.Signature, c *mkey.Crypto) {
		k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: virtual{}, Length: 1 << 40}}, Signature: s, Crypto: c})
		o := mkeytest.Oracle{Signature: s, Crypto: c}
		stride := 1
		if s != nil && s.Wire != nil {
			stride = s.Wire.Stride()
		} else if s != nil {
			stride = s.Memory.BlockSize
		}
		good := 0
		try := func(off int) {
			_, _, _, ok := o.Range(off, 0)
			err, err2 := opened(k.NewReader(int64(off), 0)), opened(k.NewWriter(int64(off), 4160))
			if ok != (err == nil) || ok != (err2 == nil) {
				t.Errorf("offset %d, signature %+v, crypto %+v: %v, %v; want it taken: %v", off, s, c, err, err2, ok)
			} else if !ok {
				wantErr(t, err, syscall.EFAULT, fmt.Sprint("offset ", off), "a transfer starts at")
				illegal++
			} else if legal++; off > 0 {
				good++
			}
		}
		for off := 0; off < 4*4168; off += max(stride, 512) {
			for _, d := range []int{-8, -4, -1, 0, 1, 7, 512} {
				try(max(0, off+d))
			}
		}
		for _, stride := range []int{512, 520, 4096, 4160} {
			try(stride * 8)
		}
		if c == nil && good == 0 {
			t.Errorf("signature %+v: no offset but 0 was taken", s)
		}
	})
	t.Logf("%d offsets taken, %d refused", legal, illegal)
}

// TestIncompleteLastBlock checks that only the data of an incomplete last block on the wire is
// transferred. The block is not checked, and its field is neither generated nor changed.
func TestIncompleteLastBlock(t *testing.T) {
	k := func(mem []byte, s mkey.Signature) *mkey.Key {
		return newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Signature: &s})
	}
	data := pattern(1024)

	// "A RECV of 512 bytes through a key whose wire domain is T10-DIF/512 places 512
	// data bytes and reports no error." The same holds for any number of bytes up to
	// the end of the field.
	for n := range uint64(520) {
		mem := bytes.Repeat([]byte{0xEE}, 1024)
		key := k(mem, mkey.Signature{Wire: t10})
		receive(t, key, 0, append(bytes.Clone(data[:512]), 1, 2, 3, 4, 5, 6, 7, 8)[:n])
		equal(t, fmt.Sprint("RX of ", n), mem, append(bytes.Clone(data[:min(n, 512)]), bytes.Repeat([]byte{0xEE}, int(1024-min(n, 512)))...))
		sound(t, key, fmt.Sprint("RX of ", n))

		// A field in memory stays unchanged too, whether it is right or wrong.
		mem = bytes.Repeat([]byte{0xEE}, 1040)
		key = k(mem, mkey.Signature{Memory: t10, Wire: t10})
		receive(t, key, 0, append(bytes.Clone(data[:512]), 1, 2, 3, 4, 5, 6, 7, 8)[:n])
		equal(t, fmt.Sprint("field in memory, RX of ", n), mem, append(bytes.Clone(data[:min(n, 512)]), bytes.Repeat([]byte{0xEE}, int(1040-min(n, 512)))...))
		if n <= 512 {
			equal(t, fmt.Sprint("field in memory, TX of ", n), send(t, key, 0, n), data[:n])
			sound(t, key, fmt.Sprint("TX of ", n))
		}
	}

	// A TX that ends within a field has the first bytes of the complete field.
	key := k(data, mkey.Signature{Wire: t10})
	whole := send(t, key, 0, 1040)
	for n := range uint64(1041) {
		equal(t, fmt.Sprint("TX of ", n), send(t, key, 0, n), whole[:n])
		if from := uint64(520); n >= from {
			equal(t, fmt.Sprint("TX from block 1 to ", n), send(t, key, from, n-from), whole[from:n])
		}
	}
	// A block is checked as complete once the first byte of its field arrives.
	key = k(make([]byte, 1040), mkey.Signature{Memory: &sig.Format{Type: sig.T10DIF, Seed: sig.SeedOnes}, Wire: t10})
	for n := range uint64(1041) {
		send(t, key, 0, n)
		if bad := check(t, key); (bad != nil) != (n > 512) {
			t.Errorf("TX of %d: %v", n, bad)
		}
	}

	// The end of the memory domain inside a longer block of the wire domain.
	mem := make([]byte, 4096+64)
	key = k(mem, mkey.Signature{Memory: t10, Wire: &sigT10x4096})
	wire := send(t, newKey(t, mkey.KeyConfig{Layout: over(pattern(4096)), Signature: &mkey.Signature{Wire: &sigT10x4096}}), 0, 4104)
	for _, n := range []int{511, 512, 513, 1000, 3584, 4095, 4096, 4097, 4103, 4104} {
		copy(mem, bytes.Repeat([]byte{0xEE}, len(mem)))
		receive(t, key, 0, wire[:n])
		blocks := min(n, 4095) / 512
		if n == 4104 {
			blocks = 8
		}
		for i := range 8 {
			field := mem[i*520+512:][:8]
			if generated := !bytes.Equal(field, bytes.Repeat([]byte{0xEE}, 8)); generated != (i < blocks) {
				t.Errorf("RX of %d: field %d generated: %v", n, i, generated)
			}
		}
	}
}

var sigT10x4096 = sig.Format{Type: sig.T10DIF, BlockSize: 4096}

// TestShorterThanRoom checks that a message may be shorter than the room, and that only its own
// length counts.
func TestShorterThanRoom(t *testing.T) {
	mem := make([]byte, 4096)
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Crypto: crypto(false, mkey.SignatureAfterCrypto, 512)})
	for n, ok := range map[int]bool{0: true, 15: false, 16: true, 24: false, 496: true, 500: false, 504: false, 512: true, 520: false, 528: true, 1024: true, 1023: false, 4096: true} {
		rx := must(k.NewWriter(0, 4096))
		if m, err := rx.Write(pattern(n)); m != n || err != nil {
			t.Errorf("write of %d: %d, %v", n, m, err)
		}
		if err := rx.Finish(); ok && err != nil {
			t.Errorf("%d bytes: %v", n, err)
		} else if !ok {
			wantErr(t, err, syscall.EMSGSIZE, "units of 512")
			wantErr(t, rx.Finish(), syscall.EMSGSIZE)
			wantErr(t, second(rx.Write(nil)), syscall.EMSGSIZE)
		}
		rx.Close()
	}
	rx := must(k.NewWriter(512, 1024))
	defer rx.Close()
	must(rx.Write(make([]byte, 512)))
	n, err := rx.Write(make([]byte, 513))
	wantErr(t, err, syscall.EFAULT, "513 bytes more after 512", "1024")
	if n != 0 {
		t.Errorf("%d bytes of too many were written", n)
	}
	if _, err := rx.Write(make([]byte, 512)); err != nil {
		t.Errorf("the rest, after too much was refused: %v", err)
	}
	if err := errors.Join(rx.Finish(), rx.Finish()); err != nil {
		t.Errorf("finish: %v", err)
	}
	wantErr(t, second(rx.Write(nil)), syscall.EINVAL, "finished")
	wantErr(t, second(k.NewWriter(512, 4096)), syscall.EFAULT, "512+4096")
}

// TestJobSize checks the rule of mlx5dv_wr_set_mkey_crypto(3) and its examples, for every
// length up to several units. A unit of 8 bytes is refused, because AES-XTS has none.
func TestJobSize(t *testing.T) {
	examples := map[[2]uint64]bool{{512, 512}: true, {512, 128}: true, {512, 47}: false, {520, 520}: true, {520, 496}: true, {520, 512}: false, {520, 528}: false}
	for _, unit := range sig.KeyBlockSizes() {
		mem := &region{buf: make([]byte, 3*unit), rights: rdma.LocalWrite}
		k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: mem, Length: uint64(3 * unit)}}, Crypto: crypto(true, 0, unit)})
		for n := range uint64(3*unit) + 1 {
			u := uint64(unit)
			want := n%u == 0 || n%16 == 0 && n%u <= u-16 && n%u >= 16
			if e, ok := examples[[2]uint64{u, n}]; ok && e != want {
				t.Errorf("the rule of this test says %t for %d bytes in units of %d, the example says %t", want, n, u, e)
			}
			err, err2 := opened(k.NewReader(0, int64(n))), openedDoor(keydoor.Of(k).RX(0, n))
			if want != (err == nil) || want != (err2 == nil) {
				t.Errorf("%d bytes in units of %d: TX %v, RX %v; want success: %t", n, unit, err, err2, want)
			}
			if !want {
				wantErr(t, err, syscall.EMSGSIZE, fmt.Sprint(n, " bytes"), fmt.Sprint("units of ", unit))
				wantErr(t, err2, syscall.EMSGSIZE)
			}
		}
	}
	// The rule applies to the encrypted stream: in row C 520 bytes are one unit, and
	// 516 are refused, although memory has as many.
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(make([]byte, 1024)), Signature: &mkey.Signature{Wire: t10}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 520)})
	for n, ok := range map[uint64]bool{520: true, 1040: true, 512: false, 516: false, 504: false, 496: true, 1016: false, 528: false, 536: false, 544: true, 552: false} {
		for _, err := range []error{opened(k.NewReader(0, int64(n))), openedDoor(keydoor.Of(k).RX(0, n))} {
			if ok {
				judge(t, fmt.Sprint("row C, ", n), err, true)
			} else {
				wantErr(t, err, syscall.EMSGSIZE)
			}
		}
	}
	// In row H, 512 bytes on the wire are 520 bytes in memory.
	k = newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(make([]byte, 1040)), Signature: &mkey.Signature{Memory: t10}, Crypto: crypto(false, mkey.SignatureAfterCrypto, 520)})
	for n, ok := range map[uint64]bool{512: true, 1024: true, 520: false, 496: true, 1008: false, 504: false} {
		err, err2 := opened(k.NewReader(0, int64(n))), openedDoor(keydoor.Of(k).RX(0, n))
		if ok != (err == nil) || ok != (err2 == nil) {
			t.Errorf("row H, %d bytes: TX %v, RX %v; want success: %t", n, err, err2, ok)
		}
	}
}

// TestAnyPieceSizes checks that a stream does not depend on the sizes of reads and writes.
func TestAnyPieceSizes(t *testing.T) {
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			memory := pattern(520 * 32)
			c.Layout = over(memory)
			k := newKey(t, c)
			n := wholeJob(t, k)
			want := send(t, k, 0, n)
			receive(t, k, 0, want) // makes every field in memory right
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			for _, size := range []int{1, 3, 16, 511, 512, 513, 520, 521, 1024, 4096, 4104, 9000, 32768, 32769} {
				tx := must(k.NewReader(0, int64(n)))
				got := make([]byte, n)
				for off := 0; off < len(got); off += size {
					must(tx.ReadAt(got[off:min(off+size, len(got))], int64(off)))
				}
				equal(t, fmt.Sprint("read by ", size), got, want)
				clear(got)
				for _, i := range r.Perm((len(got) + size - 1) / size) {
					must(tx.ReadAt(got[i*size:min((i+1)*size, len(got))], int64(i*size)))
				}
				equal(t, fmt.Sprint("read in any order by ", size), got, want)
				if tx.Bad() != 0 {
					t.Errorf("read by %d: %d bad blocks", size, tx.Bad())
				}
				tx.Close()

				saved := bytes.Clone(memory)
				clear(memory)
				rx := must(keydoor.Of(k).RX(0, n))
				for left := want; len(left) > 0; {
					m := min(len(left), size)
					noErr(t, write(rx, left[:m], len(left)/size%3 != 0))
					left = left[m:]
				}
				noErr(t, rx.Finish())
				if rx.Bad() != 0 {
					t.Errorf("written by %d: %d bad blocks", size, rx.Bad())
				}
				rx.Close()
				equal(t, fmt.Sprint("written by ", size), send(t, k, 0, n), want)
				copy(memory, saved)
			}
			tx := must(keydoor.Of(k).TX(0, n))
			defer tx.Close()
			for _, x := range [][2]uint64{{n, 1}, {n + 1, 0}, {0, n + 1}, {1<<64 - 1, 1}, {1<<64 - 1, 0}} {
				wantErr(t, tx.ReadAt(make([]byte, x[1]), x[0]), syscall.EFAULT, fmt.Sprint("of the ", n))
			}
			if tx.Len() != n || tx.ReadAt(nil, n) != nil {
				t.Errorf("length %d of %d", tx.Len(), n)
			}
		})
	}
}

// TestViewAndPlace checks that View returns the bytes of the stream and that placed bytes
// reach memory, for all lengths. Pieces that are too long are refused.
func TestViewAndPlace(t *testing.T) {
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			memory := pattern(520 * 256)
			c.Layout = over(memory)
			k := newKey(t, c)
			n := wholeJob(t, k)
			want := send(t, k, 0, n)
			receive(t, k, 0, want)
			r := rand.New(rand.NewPCG(11, uint64(len(name))))
			for range 20 {
				tx, rx := must(keydoor.Of(k).TX(0, n)), must(keydoor.Of(k).RX(0, n))
				for off := 0; off < len(want); {
					m := min(1+r.IntN(pick(r, 64, 5000, 9000, 40_000)), len(want)-off)
					if p := tx.View(uint64(off), m); p != nil {
						equal(t, fmt.Sprintf("%d bytes at %d", m, off), p, want[off:off+m])
					}
					room := rx.Place(m)
					switch {
					case room == nil:
						noErr(t, rx.Write(want[off:off+m]))
					case len(room) != m:
						t.Fatalf("room for %d bytes, not %d", len(room), m)
					default:
						copy(room, want[off:])
						noErr(t, rx.Placed(m))
					}
					off += m
				}
				noErr(t, rx.Finish())
				if rx.Place(1) != nil || rx.Placed(1) == nil {
					t.Error("room in a stream that was finished")
				}
				if tx.View(n, 1) != nil || tx.View(0, 1<<20) != nil {
					t.Error("a view of more than there is")
				}
				tx.Close()
				rx.Close()
				equal(t, "what was written", send(t, k, 0, n), want)
			}
		})
	}
}

// TestWholePackets checks that a key has a view of the longest payload and a place for it, so
// that the transport copies it in the pass that computes the CRC.
func TestWholePackets(t *testing.T) {
	const blocks, n = 128, 128 * 520
	k := newKey(t, mkey.KeyConfig{
		Access: rdma.LocalWrite, Layout: mkey.List{{Memory: mkey.Bytes(make([]byte, blocks*512)), Length: blocks * 512}},
		Signature: &mkey.Signature{Wire: t10},
	})
	tx, rx := must(keydoor.Of(k).TX(0, n)), must(keydoor.Of(k).RX(0, n))
	defer tx.Close()
	defer rx.Close()
	for off := 0; off+wire.MaxPayload <= n; off += wire.MaxPayload {
		view := tx.View(uint64(off), wire.MaxPayload)
		if len(view) != wire.MaxPayload {
			t.Fatalf("no view of a packet at %d", off)
		}
		if copy(rx.Place(wire.MaxPayload), view) != wire.MaxPayload {
			t.Fatalf("no place for a packet at %d", off)
		}
		noErr(t, rx.Placed(wire.MaxPayload))
	}
}

// TestReportedOnce checks that a stream reports a bad block once, in whichever order and
// however often it is read, and that the next stream reports it again.
func TestReportedOnce(t *testing.T) {
	const blocks = 200
	mem := make([]byte, blocks*516)
	k := newKey(t, mkey.KeyConfig{Layout: over(mem), Signature: &mkey.Signature{Memory: &sig.Format{Type: sig.CRC32, Seed: sig.SeedOnes}, Wire: t10}})
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		tx := must(k.NewReader(0, blocks*520))
		seen := make([]bool, blocks)
		count := 0
		p := make([]byte, 9000)
		next := 0
		for range 300 {
			switch r.IntN(4) {
			case 0: // jump backwards or forwards
				next = r.IntN(blocks * 520)
			case 1: // a retransmission
				next = max(0, next-r.IntN(3000))
			}
			n := min(r.IntN(len(p)), blocks*520-next)
			must(tx.ReadAt(p[:n], int64(next)))
			for b := next / 520; b*520 < next+n; b++ {
				if !seen[b] {
					seen[b] = true
					count++
				}
			}
			// The stream reads ahead, and still reports each block once.
			if next += n; tx.Bad() < count || tx.Bad() > blocks {
				t.Fatalf("seed %d: %d bad blocks of %d reported, %d were read", seed, tx.Bad(), blocks, count)
			}
		}
		for range 2 {
			must(tx.ReadAt(make([]byte, blocks*520), 0))
		}
		if tx.Bad() != blocks {
			t.Errorf("seed %d: %d bad blocks of %d reported", seed, tx.Bad(), blocks)
		}
		check(t, k)
		tx.Close()
	}
	tx := must(k.NewReader(0, 520*3))
	defer tx.Close()
	p := make([]byte, 520*3)
	for range 3 {
		must(tx.ReadAt(p, 0))
	}
	check(t, k)
	must(tx.ReadAt(p, 0))
	if bad := check(t, k); bad != nil || tx.Bad() != 3 {
		t.Errorf("a retransmission after the key was asked: %v, %d", bad, tx.Bad())
	}
	send(t, k, 0, 520)
	if bad := check(t, k); bad == nil {
		t.Error("another transfer of the same block")
	}
}

// holder is a DEK that counts its users.
type holder struct {
	cipher *xts.Cipher
	err    error
	held   int
	tag    [8]byte
}

func (h *holder) Acquire(tag [8]byte) (*xts.Cipher, error) {
	h.tag = tag
	if h.err != nil {
		return h.cipher, h.err
	}
	h.held++
	return h.cipher, nil
}

func (h *holder) Hold() error {
	if h.err == nil {
		h.held++
	}
	return h.err
}

func (h *holder) Release() { h.held-- }

// TestDEK checks that the DEK is held while a stream is open, and is not held after a
// refused one.
func TestDEK(t *testing.T) {
	h := &holder{cipher: cipher}
	c := &mkey.Crypto{DataUnitSize: 512, DEK: h, KeyTag: [8]byte{1, 2, 3}}
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(make([]byte, 512)), Crypto: c})
	if h.held != 1 {
		t.Errorf("held %d times by a key's configuration", h.held)
	}
	tx, rx := must(k.NewReader(0, 512)), must(k.NewWriter(0, 512))
	if h.held != 3 || h.tag != c.KeyTag {
		t.Errorf("held %d times by a key and 2 streams, asked with %v", h.held, h.tag)
	}
	tx.Close()
	rx.Close()
	for _, x := range [][2]uint64{{0, 47}, {0, 1024}, {3, 16}} {
		if _, err := keydoor.Of(k).TX(x[0], x[1]); err == nil {
			t.Error("not refused")
		}
		if _, err := keydoor.Of(k).RX(x[0], x[1]); err == nil {
			t.Error("not refused")
		}
	}
	if h.held != 1 {
		t.Errorf("held %d times after all streams were closed", h.held)
	}
	h.err = errGone
	if _, err := k.NewReader(0, 512); !errors.Is(err, errGone) || h.held != 1 {
		t.Errorf("a DEK that refuses: %v, held %d times", err, h.held)
	}
	h.err, h.cipher = nil, nil
	wantErr(t, second(k.NewWriter(0, 512)), syscall.EINVAL, "DEK")
	other := &holder{cipher: cipher}
	if err := configure(k, update{Crypto: &mkey.Crypto{DataUnitSize: 512, DEK: other}}); err != nil || h.held != 0 || other.held != 1 {
		t.Errorf("another DEK: %v, held %d and %d times", err, h.held, other.held)
	}
	h.err = errGone
	if err := configure(k, update{Crypto: &mkey.Crypto{DataUnitSize: 512, DEK: h}}); !errors.Is(err, errGone) || other.held != 1 {
		t.Errorf("a DEK that was closed: %v, the one before is held %d times", err, other.held)
	}
	k.Close()
	k.Close()
	if other.held != 0 {
		t.Errorf("held %d times after the key was closed", other.held)
	}
	var none *holder
	for _, d := range []mkey.DEK{nil, none} {
		wantErr(t, second(mkey.New(mkey.KeyConfig{Crypto: &mkey.Crypto{DataUnitSize: 512, DEK: d}})), syscall.EINVAL, "without a DEK")
	}

	unset := must(create(mkey.CryptoOffload, 1))
	noErr(t, configure(unset, update{Access: new(rdma.LocalWrite), Layout: over(make([]byte, 512))}))
	wantErr(t, second(unset.NewReader(0, 512)), syscall.EINVAL, "crypto attributes")
	wantErr(t, second(unset.NewWriter(0, 512)), syscall.EINVAL, "crypto attributes")
}

// TestKeyTag checks that the key's keytag must equal that of the DEK, if the DEK has one.
func TestKeyTag(t *testing.T) {
	key := pattern(32)
	tag := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	with := must(dek.New(append(bytes.Clone(key), tag[:]...)))
	without := must(dek.New(key))
	for _, c := range []struct {
		dek *dek.DEK
		tag [8]byte
		ok  bool
	}{{with, tag, true}, {with, [8]byte{}, false}, {with, [8]byte{1}, false}, {without, [8]byte{}, true}, {without, tag, true}} {
		k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(make([]byte, 512)), Crypto: &mkey.Crypto{DataUnitSize: 512, DEK: c.dek, KeyTag: c.tag}})
		err, err2 := opened(k.NewReader(0, 512)), opened(k.NewWriter(0, 512))
		if (err == nil) != c.ok || (err2 == nil) != c.ok {
			t.Errorf("keytag %v of %v: %v, %v", c.tag, c.dek, err, err2)
		}
		if !c.ok {
			wantErr(t, err, syscall.EINVAL, "keytag")
		}
		wantErr(t, c.dek.Close(), syscall.EBUSY)
		k.Close()
	}
	for _, d := range []*dek.DEK{with, without} {
		if err := d.Close(); err != nil {
			t.Errorf("a stream still holds it: %v", err)
		}
	}
	wantErr(t, second(mkey.New(mkey.KeyConfig{Layout: over(make([]byte, 512)), Crypto: &mkey.Crypto{DataUnitSize: 512, DEK: with, KeyTag: tag}})), syscall.EINVAL, "closed")
}

// A repeated READ of a peer reports only bad blocks that no earlier stream has checked.
func TestRepeatedStreamReportsTheRest(t *testing.T) {
	const blocks, checked = 200, 50
	mem := make([]byte, blocks*516)
	remote := rdma.RemoteRead
	k := newKey(t, mkey.KeyConfig{Access: remote, Layout: over(mem), Signature: &mkey.Signature{Memory: &sig.Format{Type: sig.CRC32, Seed: sig.SeedOnes}, Wire: t10}})
	d := keydoor.Of(k)
	for _, c := range []struct {
		read int // blocks read from the first stream
		want int // bad blocks reported by the second stream
	}{{0, blocks}, {checked, -1}, {blocks, 0}} {
		first := must(d.RemoteTX(0, blocks*520, 0, false))
		noErr(t, first.ReadAt(make([]byte, c.read*520), 0))
		at, bad := first.Checked(), first.Bad()
		first.Close()
		second := must(d.RemoteTX(0, blocks*520, at, true))
		noErr(t, second.ReadAt(make([]byte, blocks*520), 0))
		if bad+second.Bad() != blocks || c.want >= 0 && second.Bad() != c.want {
			t.Errorf("after %d blocks were read: %d and then %d bad blocks are reported, want %d in all", c.read, bad, second.Bad(), blocks)
		}
		second.Close()
	}
}
