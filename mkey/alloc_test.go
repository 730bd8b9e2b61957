package mkey_test

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/base/kernel/race"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// row is the configuration of a key.
type row struct {
	name string
	s    *mkey.Signature
	c    *mkey.Crypto
}

// rows returns a configuration for each row of the table in mlx5dv_wr_set_mkey_crypto(3),
// with matching data units. The signatures are T10-DIF with blocks of 512 bytes and, if
// there is a second one, CRC64.
func rows() []row {
	const after, before = mkey.SignatureAfterCrypto, mkey.SignatureBeforeCrypto
	mem := &mkey.Signature{Memory: t10}
	wire := &mkey.Signature{Wire: t10}
	both := &mkey.Signature{Memory: t10, Wire: &sig.Format{Type: sig.CRC64}}
	return []row{
		{"A", nil, crypto(true, after, 512)},
		{"B", wire, crypto(true, after, 512)},
		{"C", wire, crypto(true, before, 520)},
		{"D", mem, crypto(true, before, 512)},
		{"E", both, crypto(true, before, 520)},
		{"F", nil, crypto(false, after, 512)},
		{"G", wire, crypto(false, after, 512)},
		{"H", mem, crypto(false, after, 520)},
		{"I", both, crypto(false, after, 520)},
		{"J", mem, crypto(false, before, 512)},
	}
}

// scattered returns a layout of n bytes in segments of size bytes with gaps between them.
func scattered(n, size int) mkey.List {
	buf := pattern(2 * (n + size))
	var l mkey.List
	for at := 0; n > 0; at += 2 * size {
		m := min(n, size)
		l = append(l, mkey.Segment{Memory: mkey.Bytes(buf), Addr: uint64(at), Length: uint64(m)})
		n -= m
	}
	return l
}

// TestAllocations checks that opening, using and closing a stream does not allocate: in
// every row and for every pair of signatures, with equal and with different block sizes,
// over contiguous and scattered memory, whole and in packets, and with bad blocks.
func TestAllocations(t *testing.T) {
	confs := append(rows(), row{name: "plain"})
	for _, m := range formats()[:5] {
		for _, w := range formats()[:5] {
			if m != nil || w != nil {
				confs = append(confs, row{fmt.Sprintf("%v to %v", m, w), &mkey.Signature{Memory: m, Wire: w}, nil})
			}
		}
	}
	const memory = 64 * 520
	buf := make([]byte, 2*memory)
	for _, c := range confs {
		for name, l := range map[string]mkey.Layout{
			"contiguous": over(pattern(memory)),
			"scattered":  scattered(memory, 4096),
			"odd":        scattered(memory, 1000),
			"interleaved": mkey.Interleaved{Repeat: 64, Entries: []mkey.Entry{
				{Memory: mkey.Bytes(pattern(64 * 512)), Count: 512}, {Memory: mkey.Bytes(pattern(64 * 8)), Count: 8}}},
		} {
			k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: l, Signature: c.s, Crypto: c.c})
			n := wholeJob(t, k)
			wire := buf[:n]
			for _, piece := range []int{1024, len(wire)} {
				run := func() {
					sendPieces(t, k, wire, piece)
					receivePieces(t, k, wire, piece)
				}
				run() // makes the fields in memory right and fills the pools
				// Under the race detector, sync.Pool drops items at random.
				if a := testing.AllocsPerRun(5, run); a != 0 && !race.Enabled {
					t.Errorf("%s, %s, pieces of %d: %v allocations", c.name, name, piece, a)
				}
			}
		}
	}
}

// wholeJob returns the length of the longest transfer from offset 0 that ends at the end
// of a block or before it, and that AES-XTS can process.
func wholeJob(t testing.TB, k *mkey.Key) uint64 {
	t.Helper()
	for n := uint64(must(k.WireLen())); n > 0; n-- {
		if tx, err := k.NewReader(0, int64(n)); err == nil {
			tx.Close()
			return n
		}
	}
	t.Fatal("no transfer is possible")
	return 0
}
