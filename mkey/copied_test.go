package mkey_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/kernel/race"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// nvme returns a layout of blocks with separate fields, in one space or in two.
func nvme(data, fields mkey.Memory, blocks int) mkey.Interleaved {
	return mkey.Interleaved{Repeat: uint32(blocks), Entries: []mkey.Entry{
		{Memory: data, Count: 512}, {Memory: fields, Addr: 1 << 20, Count: 8},
	}}
}

// TestCopiedCalls checks that a step of up to 32 KiB makes one call of the space: for
// every layout, with and without signatures and crypto, for reads in packets and for
// reads of everything.
func TestCopiedCalls(t *testing.T) {
	const blocks, total = 630, 630 * 520 // 10 steps of 63 blocks
	space := &mkeytest.Space{Mem: make([]byte, 2<<20), Base: 0x7f00_0000_0000, Rights: rdma.LocalWrite}
	nested := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: nvme(space, space, blocks)})
	layouts := map[string]mkey.Layout{
		"contiguous": mkey.List{{Memory: space, Length: total}},
		"separate":   nvme(space, space, blocks),
		"nested":     mkey.List{{Memory: nested, Length: 5200}, {Memory: nested, Addr: 5200, Length: total - 5200}},
		"half copied": mkey.Interleaved{Repeat: blocks, Entries: []mkey.Entry{
			{Memory: mkey.Bytes(make([]byte, blocks*512)), Count: 512}, {Memory: space, Count: 8},
		}},
	}
	for name, l := range layouts {
		for _, signed := range []bool{false, true} {
			c := mkey.KeyConfig{Access: rdma.LocalWrite, Layout: l}
			if signed {
				c.Signature = &mkey.Signature{Memory: t10, Wire: t10}
			}
			k := newKey(t, c)
			stream := mkeytest.Protect(t10, pattern(blocks*512))
			for _, piece := range []int{1024, 4096, total} {
				name := fmt.Sprintf("%s, signed %t, pieces of %d", name, signed, piece)
				space.Reads, space.Writes = 0, 0
				receivePieces(t, k, stream, piece)
				got := make([]byte, total)
				sendPieces(t, k, got, piece)
				equal(t, name, got, stream)
				// The limit is 11, because a step without blocks has 32768
				// bytes.
				if space.Reads > 11 || space.Writes > 11 {
					t.Errorf("%s: %d reads, %d writes, want 10 or 11 of each", name, space.Reads, space.Writes)
				}
			}
			if signed {
				sound(t, k, name)
			}
		}
	}
	space.Reads, space.Pieces = 0, 0
	send(t, newKey(t, mkey.KeyConfig{Layout: mkey.List{{Memory: space, Length: 100}, {Memory: space, Addr: 100, Length: 200}}}), 0, 300)
	if space.Reads != 1 || space.Pieces != 1 {
		t.Errorf("two segments in a row: %d calls with %d pieces, want one of each", space.Reads, space.Pieces)
	}
}

// TestCopiedSmallPieces checks that a call has at most 512 pieces.
func TestCopiedSmallPieces(t *testing.T) {
	space := &mkeytest.Space{Mem: pattern(10000), Rights: rdma.LocalWrite}
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.Interleaved{Repeat: 1500, Entries: []mkey.Entry{{Memory: space, Count: 1, Skip: 1}}}})
	wire := send(t, k, 0, 1500)
	for i, b := range wire {
		if b != space.Mem[2*i] {
			t.Fatalf("byte %d", i)
		}
	}
	if space.Reads != 3 || space.Pieces != 1500 {
		t.Errorf("%d calls with %d pieces", space.Reads, space.Pieces)
	}
	receive(t, k, 0, wire)
}

// TestCopiedFailures checks that an error of a space at any position becomes the error of
// the stream. TX can be retried, RX can not.
func TestCopiedFailures(t *testing.T) {
	errFault := errors.New("no page there")
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			const total = 520 * 192
			space := &mkeytest.Space{Mem: make([]byte, total), Base: 4096, Rights: rdma.LocalWrite}
			var l mkey.List
			for at := uint64(0); at < total; at += 5200 {
				l = append(l, mkey.Segment{Memory: space, Addr: at, Length: min(5200, total-at)})
			}
			c.Layout = l
			k := newKey(t, c)
			n := wholeJob(t, k)
			stream := make([]byte, n)
			receive(t, k, 0, stream)
			want := send(t, k, 0, n)
			for _, bad := range []uint64{0, 5200, 50_000, 90_000} {
				space.Fail = func(v keydoor.Vec) error {
					if bad+4096 >= v.Addr && bad+4096 < v.Addr+uint64(len(v.Buf)) {
						return errFault
					}
					return nil
				}
				tx, got := must(k.NewReader(0, int64(n))), make([]byte, n)
				_, err := tx.ReadAt(got, 0)
				if !errors.Is(err, errFault) {
					t.Errorf("TX with a bad page at %d: %v", bad, err)
				}
				rx := must(k.NewWriter(0, int64(n)))
				err = writeAll(rx, want)
				if _, again := rx.Write(nil); !errors.Is(err, errFault) || again != err {
					t.Errorf("RX with a bad page at %d: %v, then %v", bad, err, again)
				}
				rx.Close()
				space.Fail = nil
				if _, err := tx.ReadAt(got, 0); err != nil {
					t.Errorf("TX tried again: %v", err)
				}
				tx.Close()
				receive(t, k, 0, want)
				equal(t, "after failures", send(t, k, 0, n), want)
			}
		})
	}
}

// TestCopiedAccess checks that rights and bounds are those of memory in place, and that
// At is refused.
func TestCopiedAccess(t *testing.T) {
	space := &mkeytest.Space{Mem: make([]byte, 64)}
	k := newKey(t, mkey.KeyConfig{Access: 15, Layout: mkey.List{{Memory: space, Length: 128}}})
	wantErr(t, second(k.NewReader(0, 65)), syscall.EFAULT)
	wantErr(t, second(k.NewWriter(0, 8)), syscall.EACCES)
	wantErr(t, second(k.At(0, 8, 0)), syscall.EOPNOTSUPP)
	space.Rights = rdma.LocalWrite
	d := keydoor.Of(k)
	space.Mem[8] = 5
	next := func(old uint64) (uint64, bool) { return old + 1, old != 6 }
	for want := range uint64(3) {
		old, err := d.Atomic(8, 8, next)
		if err != nil || old != min(5+want, 6) {
			t.Errorf("atomic %d: %d, %v", want, old, err)
		}
	}
	if space.Writes != 1 {
		t.Errorf("%d writes for one change", space.Writes)
	}
	wantErr(t, second(d.Atomic(60, 8, next)), syscall.EFAULT)
}

// TestListStreams checks streams over a list of memory without a key: in place, copied
// and mixed, through ReadAt and View, Write and Place.
func TestListStreams(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		n := r.IntN(pick(r, 10, 5000, 200_000))
		var l mkey.List
		for layout := mkey.Layout(nil); l == nil; l, _ = layout.(mkey.List) {
			layout, _ = mkeytest.RandomLayout(r, n, 9)
		}
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		rx := must(keydoor.ListRX(&l, rdma.LocalWrite))
		for left := want; len(left) > 0; {
			m := min(len(left), 1+r.IntN(9000))
			noErr(t, write(rx, left[:m], r.IntN(2) == 0))
			left = left[m:]
			if r.IntN(50) == 0 {
				noErr(t, rx.Flush())
			}
		}
		if err := rx.Finish(); err != nil || rx.Written() != uint64(n) {
			t.Fatal(rx.Written(), err)
		}
		rx.Close()
		tx := must(keydoor.ListTX(&l, 0))
		if tx.Len() != uint64(n) {
			t.Errorf("length %d of %d", tx.Len(), n)
		}
		got := make([]byte, n)
		for off := 0; off < n; {
			m := min(n-off, 1+r.IntN(9000))
			if b := tx.View(uint64(off), m); b != nil {
				copy(got[off:], b)
			} else if err := tx.ReadAt(got[off:off+m], uint64(off)); err != nil {
				t.Fatal(err)
			}
			if off += m; r.IntN(8) == 0 {
				off -= r.IntN(off + 1)
			}
		}
		tx.Close()
		equal(t, fmt.Sprint("seed ", seed), got, want)
	}

	space := &mkeytest.Space{Mem: make([]byte, 64<<10)}
	l := mkey.List{{Memory: space, Length: 40 << 10}, {Memory: space, Addr: 40 << 10, Length: 24 << 10}}
	tx := must(keydoor.ListTX(&l, 0))
	for off := uint64(0); off < 64<<10; off += 1024 {
		if len(tx.View(off, 1024)) != 1024 {
			t.Fatalf("no view of a packet at %d", off)
		}
	}
	tx.Close()
	if space.Reads != 2 {
		t.Errorf("64 packets took %d calls of the space, want 2", space.Reads)
	}
	wantErr(t, second(keydoor.ListRX(&l, rdma.LocalWrite)), syscall.EACCES)
	l[1].Length++
	wantErr(t, second(keydoor.ListTX(&l, 0)), syscall.EFAULT)
	l[1].Memory = nil
	wantErr(t, second(keydoor.ListTX(&l, 0)), syscall.EINVAL, "names no memory")
}

// TestCopiedAllocations checks that copying does not allocate per message, with a key and
// without.
func TestCopiedAllocations(t *testing.T) {
	space := &mkeytest.Space{Mem: make([]byte, 2<<20), Rights: rdma.LocalWrite}
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: nvme(space, space, 64), Signature: &mkey.Signature{Memory: t10}})
	d, l := keydoor.Of(k), mkey.List{{Memory: space, Length: 5000}, {Memory: space, Addr: 9999, Length: 27768}}
	buf := make([]byte, 32<<10)
	for name, f := range map[string]func() (keydoor.TX, keydoor.RX){
		"key":  func() (keydoor.TX, keydoor.RX) { return must(d.TX(0, 32<<10)), must(d.RX(0, 32<<10)) },
		"list": func() (keydoor.TX, keydoor.RX) { return must(keydoor.ListTX(&l, 0)), must(keydoor.ListRX(&l, 1)) },
	} {
		run := func() {
			tx, rx := f()
			for off := uint64(0); off < 32<<10; off += 4096 {
				noErr(t, errors.Join(tx.ReadAt(buf[:4096], off), rx.Write(buf[:4096])))
			}
			noErr(t, rx.Finish())
			tx.Close()
			rx.Close()
		}
		run()
		// Under the race detector, sync.Pool drops items at random.
		if a := testing.AllocsPerRun(10, run); a > 0 && !race.Enabled {
			t.Errorf("%s: %v allocations", name, a)
		}
	}
}

// TestCopiedOrder checks that a space gets its pieces in rising order, except for
// overlapping pieces in a write: the last one in the layout then wins, as it does for
// memory in place.
func TestCopiedOrder(t *testing.T) {
	var last uint64
	rising := true
	space := &mkeytest.Space{Mem: make([]byte, 2<<20), Rights: rdma.LocalWrite, Fail: func(v keydoor.Vec) error {
		rising = rising && v.Addr >= last
		last = v.Addr
		return nil
	}}
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: nvme(space, space, 60)})
	receive(t, k, 0, pattern(60*520))
	last = 0
	equal(t, "separate fields", send(t, k, 0, 60*520), pattern(60*520))
	if !rising {
		t.Error("pieces that do not overlap are not in rising order")
	}

	var lists [2]mkey.List
	mem := make(mkey.Bytes, 40)
	copied := &mkeytest.Space{Mem: make([]byte, 40), Rights: rdma.LocalWrite}
	for i, m := range []mkey.Memory{mem, copied} {
		for _, at := range []uint64{20, 0, 25, 5, 10} {
			lists[i] = append(lists[i], mkey.Segment{Memory: m, Addr: at, Length: 10})
		}
		receive(t, newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: lists[i]}), 0, pattern(50))
	}
	equal(t, "pieces that overlap", copied.Mem, mem)
}

// inPlace is memory of a type that may have a Space, but has none.
type inPlace struct{ mkey.Bytes }

func (inPlace) Space(uint64, uint64, rdma.Access) (keydoor.Space, uint64, error) { return nil, 0, nil }

// TestNoSpace checks that bytes without a Space are not read ahead if there is nothing to
// process: the buffer would be one more copy.
func TestNoSpace(t *testing.T) {
	space := &mkeytest.Space{Mem: make([]byte, 4096)}
	for _, c := range []struct {
		memory mkey.Memory
		view   int
	}{{inPlace{make([]byte, 4096)}, 0}, {space, 1024}} {
		tx := must(keydoor.ListTX(&mkey.List{{Memory: c.memory, Length: 4096}}, 0))
		if got := len(tx.View(0, 1024)); got != c.view {
			t.Errorf("%T: a view of %d bytes, want %d", c.memory, got, c.view)
		}
		tx.Close()
	}
}
