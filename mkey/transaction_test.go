package mkey_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	hash "hash/crc32"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// transactionKey returns a key over mem with a transaction signature.
func transactionKey(t testing.TB, mem mkey.Layout, tr keydoor.Transaction) *mkey.Key {
	k := must(create(mkey.BlockSignature, 64))
	noErr(t, configure(k, update{Access: new(rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite), Layout: mem, Transaction: &tr}))
	return k
}

// rfc3720 holds the vectors of RFC 3720, appendix B.4: 32 bytes each, and the
// CRC in the order of the wire.
var rfc3720 = []struct {
	data []byte
	crc  string
}{
	{make([]byte, 32), "aa36918a"},
	{bytes.Repeat([]byte{0xFF}, 32), "43aba862"},
	{ascending(), "4e79dd46"},
	{descending(), "5cdb3f11"},
}

func ascending() (b []byte) {
	for i := range 32 {
		b = append(b, byte(i))
	}
	return b
}

func descending() (b []byte) {
	for i := range 32 {
		b = append(b, byte(31-i))
	}
	return b
}

// TestTransactionVectors reads the vectors of RFC 3720 through one key, and through several
// keys with one PSV: the first one starts the register and the last one gives the CRC.
func TestTransactionVectors(t *testing.T) {
	for _, v := range rfc3720 {
		for _, cuts := range [][]int{{32}, {16, 16}, {1, 30, 1}, {2, 30}, {31, 1, 0}, {4, 4, 8, 16}} {
			psv := keydoor.NewPSV()
			psv.Set(0x12345678) // value of another stream
			var wire []byte
			rest := v.data
			for i, n := range cuts {
				last := i == len(cuts)-1
				k := transactionKey(t, over(rest[:n:n]), keydoor.Transaction{PSV: psv, Init: i == 0, Generate: last, Length: uint64(n)})
				rest = rest[n:]
				want := uint64(n)
				if last {
					want += 4
				}
				if got := must(k.WireLen()); got != int64(want) {
					t.Fatalf("the wire has %d bytes, want %d", got, want)
				}
				wire = append(wire, send(t, k, 0, want)...)
			}
			equal(t, fmt.Sprint(cuts), wire, append(bytes.Clone(v.data), must(hex.DecodeString(v.crc))...))
			if got := psv.Register(); got != ^hash.Checksum(v.data, hash.MakeTable(hash.Castagnoli)) {
				t.Errorf("%v: the register is %#x", cuts, got)
			}
		}
	}
}

// TestTransactionRanges compares random reads of random keys, in memory of all
// kinds, with the definition: each byte of data changes the register once, even
// if the reader repeats or skips bytes, and the CRC follows the data.
func TestTransactionRanges(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 300
	}
	table := hash.MakeTable(hash.Castagnoli)
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 4))
		psv := keydoor.NewPSV()
		register := r.Uint32()
		psv.Set(register)
		for range 1 + r.IntN(4) {
			data := make([]byte, r.IntN(pick(r, 40, 4000, 100_000)))
			layout, mem := mkeytest.RandomLayout(r, len(data), 16)
			plain := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: layout})
			for i := range mem {
				mem[i] = byte(r.Uint32())
			}
			copy(data, send(t, plain, 0, uint64(len(data))))
			tr := keydoor.Transaction{PSV: psv, Init: r.IntN(2) == 0, Generate: r.IntN(3) > 0}
			d := keydoor.Of(transactionKey(t, layout, tr))
			// A range, which in most cases begins at 0 or at the end of the data.
			offset := pick(r, 0, 0, len(data), r.IntN(len(data)+1))
			field := 0
			if tr.Generate {
				field = 4
			}
			length := pick(r, len(data)-offset+field, r.IntN(len(data)-offset+field+1))
			if length == 0 {
				continue // a device does not open an empty READ
			}
			end := min(offset+length, len(data))
			if offset == 0 && tr.Init {
				register = 0xFFFFFFFF
			}
			first := register
			register = ^hash.Update(^register, table, data[offset:end])
			crc := ^register
			want := append(bytes.Clone(data[offset:end]), byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))[:length]
			// The READ is answered several times, wholly or in part.
			var mark uint64
			repeated := false
			for attempt := range 1 + r.IntN(3) {
				tx := must(d.RemoteTX(uint64(offset), uint64(length), mark, repeated))
				whole := attempt == 0 || r.IntN(2) == 0
				for off := r.IntN(length) * r.IntN(2); off < length && (whole || r.IntN(10) > 0); {
					n := min(length-off, 1+r.IntN(pickSize(r)))
					got := make([]byte, n)
					if v := tx.View(uint64(off), n); v != nil && r.IntN(2) == 0 {
						copy(got, v)
					} else if err := tx.ReadAt(got, uint64(off)); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want[off:off+n]) {
						t.Fatalf("seed %d: %d+%d of %d+%d, %d bytes of data, attempt %d: differs at %d", seed, off, n, offset, length, len(data), attempt, differ(got, want[off:]))
					}
					if off += n; r.IntN(8) == 0 {
						off -= r.IntN(off + 1)
					}
				}
				mark = max(mark, tx.Checked())
				tx.Close()
				repeated = true
			}
			// The last repetition reads the bytes that the earlier answers
			// skipped.
			tx := must(d.RemoteTX(uint64(offset), uint64(length), mark, repeated))
			noErr(t, tx.ReadAt(make([]byte, length), 0))
			tx.Close()
			if got := psv.Register(); got != register {
				t.Fatalf("seed %d: the register is %#x, want %#x (from %#x)", seed, got, register, first)
			}
		}
	}
}

// TestTransactionRepeats repeats the end of an answered READ many times. The
// data before that end must not be read again.
func TestTransactionRepeats(t *testing.T) {
	const n = 1 << 20
	space := &mkeytest.Space{Mem: pattern(n), Rights: rdma.LocalWrite}
	d := keydoor.Of(transactionKey(t, mkey.List{{Memory: space, Length: n}}, keydoor.Transaction{PSV: keydoor.NewPSV(), Init: true, Generate: true}))
	tx := must(d.RemoteTX(0, n+4, 0, false))
	want := make([]byte, n+4)
	noErr(t, tx.ReadAt(want, 0))
	mark := tx.Checked()
	tx.Close()
	space.Reads = 0
	for range 3 {
		tx := must(d.RemoteTX(0, n+4, mark, true))
		got := make([]byte, 4)
		noErr(t, tx.ReadAt(got, n))
		equal(t, "the CRC", got, want[n:])
		mark = max(mark, tx.Checked())
		tx.Close()
	}
	if space.Reads != 0 {
		t.Errorf("the data is read %d times more", space.Reads)
	}
}

// TestTransactionRefused checks the configurations and transfers that are
// refused for a transaction signature.
func TestTransactionRefused(t *testing.T) {
	psv := keydoor.NewPSV()
	data := pattern(1024)
	k := transactionKey(t, over(data), keydoor.Transaction{PSV: psv, Init: true, Generate: true})
	for _, x := range [][2]uint64{{0, 1029}, {1024, 5}, {1025, 1}, {1028, 0}, {1 << 63, 1 << 63}, {4, ^uint64(0)}} {
		wantErr(t, second(keydoor.Of(k).TX(x[0], x[1])), syscall.EFAULT, "signature")
	}
	without := transactionKey(t, over(data), keydoor.Transaction{PSV: psv, Init: true})
	wantErr(t, second(without.NewReader(0, 1025)), syscall.EFAULT, "1024 bytes of data")
	wantErr(t, second(k.NewWriter(0, 1024)), syscall.EOPNOTSUPP, "read only")
	wantErr(t, second(keydoor.Of(k).RemoteRX(0, 8)), syscall.EOPNOTSUPP, "read only")
	if _, err := mkey.New(mkey.KeyConfig{Layout: mkey.List{{Memory: k, Length: 8}}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nested: %v", err)
	}
	for name, u := range map[string]update{
		"no PSV":               {Transaction: &keydoor.Transaction{}},
		"with block signature": {Transaction: &keydoor.Transaction{PSV: psv}, Signature: &mkey.Signature{Wire: t10}},
		"with crypto":          {Transaction: &keydoor.Transaction{PSV: psv}, Crypto: crypto(true, 0, 512)},
		"too long":             {Transaction: &keydoor.Transaction{PSV: psv}, Layout: mkey.List{{Memory: mkey.Bytes(data), Length: 16<<20 + 1}}},
		"another length":       {Transaction: &keydoor.Transaction{PSV: psv, Length: 1023}},
		"a shorter layout":     {Transaction: &keydoor.Transaction{PSV: psv, Length: 1024}, Layout: over(data[:8])},
	} {
		both := must(create(mkey.BlockSignature|mkey.CryptoOffload, 4))
		noErr(t, configure(both, update{Layout: over(data)}))
		if err := configure(both, u); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := must(create(0, 0))
	if err := configure(plain, update{Transaction: &keydoor.Transaction{PSV: psv}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a key without BlockSignature: %v", err)
	}
}

// TestTransactionReplaced configures a key with one kind of signature after the
// other.
func TestTransactionReplaced(t *testing.T) {
	data, psv := pattern(512), keydoor.NewPSV()
	k := transactionKey(t, over(data), keydoor.Transaction{PSV: psv, Init: true, Generate: true})
	signed := send(t, k, 0, 516)
	become := func(u update) {
		t.Helper()
		noErr(t, configure(k, u))
	}
	become(update{Signature: &mkey.Signature{Wire: &sig.Format{Type: sig.CRC32C}}})
	equal(t, "block signature", send(t, k, 0, 516), signed) // one block: the same CRC
	receive(t, k, 0, signed)
	become(update{Transaction: &keydoor.Transaction{PSV: psv, Init: true, Generate: true}})
	equal(t, "transaction signature", send(t, k, 0, 516), signed)
	become(update{ResetSignature: true})
	if n := must(k.WireLen()); n != 512 {
		t.Errorf("without a signature the wire has %d bytes", n)
	}
	receive(t, k, 0, data)
}
