package mkey_test

import (
	"errors"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// region is memory with rights and bounds, in which a fault can be enabled.
type region struct {
	buf     []byte
	rights  rdma.Access
	reached []([2]uint64)     // ranges passed to Reach
	gone    func(uint64) bool // whether At refuses an address
	short   int               // largest number of bytes that At returns; 0: unlimited
}

var errGone = errors.New("the region was taken away")

func (r *region) Reach(addr, n uint64, need rdma.Access) error {
	r.reached = append(r.reached, [2]uint64{addr, n})
	if need&^r.rights != 0 {
		return &operr.Error{Op: "region", Errno: syscall.EACCES, Reason: "no right"}
	}
	return mkey.Bytes(r.buf).Reach(addr, n, need)
}

func (r *region) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	if r.gone != nil && r.gone(addr) {
		return nil, errGone
	}
	if r.short > 0 {
		n = min(n, uint64(r.short))
	}
	return mkey.Bytes(r.buf).At(addr, n, need)
}

func TestList(t *testing.T) {
	a, b := pattern(100), pattern(50)
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{
		{Memory: mkey.Bytes(a), Addr: 90, Length: 10},
		{Memory: mkey.Bytes(b), Length: 0},
		{Memory: mkey.Bytes(nil), Addr: 1 << 63, Length: 0}, // never resolved
		{Memory: mkey.Bytes(b), Addr: 5, Length: 1},
		{Memory: mkey.Bytes(a), Addr: 3, Length: 20},
	}})
	want := append(append(append([]byte(nil), a[90:]...), b[5]), a[3:23]...)
	equal(t, "all", send(t, k, 0, 31), want)
	for from := range uint64(32) {
		for n := range 32 - from {
			equal(t, "a part", send(t, k, from, n), want[from:from+n])
		}
	}
	if n, err := k.WireLen(); n != 31 || err != nil {
		t.Errorf("length %d, %v", n, err)
	}
	for _, x := range [][2]uint64{{0, 32}, {31, 1}, {32, 0}, {math.MaxUint64, 1}, {1, math.MaxUint64}, {math.MaxUint64, math.MaxUint64}, {1 << 56, 1}, {0, 1 << 56}} {
		wantErr(t, second(keydoor.Of(k).TX(x[0], x[1])), syscall.EFAULT)
		wantErr(t, second(keydoor.Of(k).RX(x[0], x[1])), syscall.EFAULT)
		wantErr(t, second(keydoor.Of(k).RXUpTo(x[0], x[1])), syscall.EFAULT)
	}
	for _, x := range [][2]int64{{-1, 0}, {0, -1}, {math.MinInt64, math.MinInt64}} {
		wantErr(t, second(k.NewReader(x[0], x[1])), syscall.EINVAL, "negative")
		wantErr(t, second(k.NewWriter(x[0], x[1])), syscall.EINVAL, "negative")
	}
	receive(t, k, 9, []byte{1, 2, 3})
	if a[99] != 1 || b[5] != 2 || a[3] != 3 {
		t.Error("written elsewhere")
	}
}

// TestInterleaved checks the example of mlx5dv_wr_mkey_configure(3): 512 bytes of mr1, 8
// of mr2, 512 of mr1 from 516, 8 of mr2 from 8.
func TestInterleaved(t *testing.T) {
	mr1, mr2 := make([]byte, 1032), make([]byte, 16)
	k := newKey(t, mkey.KeyConfig{Access: rdma.RemoteWrite | rdma.RemoteRead | rdma.LocalWrite, Layout: mkey.Interleaved{Repeat: 2, Entries: []mkey.Entry{
		{Memory: mkey.Bytes(mr1), Count: 512, Skip: 4},
		{Memory: mkey.Bytes(mr2), Count: 8},
	}}})
	data := pattern(1040)
	receive(t, k, 0, data)
	equal(t, "mr1", mr1[:512], data[:512])
	equal(t, "mr2", mr2[:8], data[512:520])
	equal(t, "mr1 from 516", mr1[516:1028], data[520:1032])
	equal(t, "mr2 from 8", mr2[8:], data[1032:])
	equal(t, "the gap", mr1[512:516], make([]byte, 4))
	equal(t, "read", send(t, k, 500, 540), data[500:])
	if n, _ := k.WireLen(); n != 1040 {
		t.Errorf("length %d", n)
	}
	wantErr(t, second(k.NewReader(0, 1041)), syscall.EFAULT, "1040 bytes")
	signed := newKey(t, mkey.KeyConfig{Layout: mkey.List{{Memory: mkey.Bytes(make([]byte, 2048)), Length: 2048}}, Access: rdma.LocalWrite, Signature: &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF}}})
	wantErr(t, second(signed.NewReader(0, 2088)), syscall.EFAULT, "range 0+2088 lies outside of the 2080 bytes of the key's wire domain")

	// Every byte of an irregular pattern, for transfers that begin at any offset.
	mem := pattern(200)
	l := mkey.Interleaved{Repeat: 5, Entries: []mkey.Entry{
		{Memory: mkey.Bytes(mem), Addr: 2, Count: 3, Skip: 11},
		{Memory: mkey.Bytes(mem), Addr: 0, Count: 0, Skip: 9},
		{Memory: mkey.Bytes(mem), Addr: 90, Count: 1, Skip: 0},
		{Memory: mkey.Bytes(mem), Addr: 100, Count: 7, Skip: 1},
	}}
	var want []byte
	for turn := range 5 {
		want = append(want, mem[2+turn*14:][:3]...)
		want = append(want, mem[90+turn])
		want = append(want, mem[100+turn*8:][:7]...)
	}
	k = newKey(t, mkey.KeyConfig{Layout: l})
	for from := range uint64(56) {
		for n := range 56 - from {
			equal(t, "a part of the pattern", send(t, k, from, n), want[from:from+n])
		}
	}
}

// TestEmptyLayouts checks that layouts without bytes accept empty transfers.
func TestEmptyLayouts(t *testing.T) {
	mem := mkey.Bytes(make([]byte, 8))
	for _, l := range []mkey.Layout{
		mkey.List{}, mkey.List(nil), mkey.List{{Memory: mem}}, mkey.Interleaved{},
		mkey.Interleaved{Repeat: 0, Entries: []mkey.Entry{{Memory: mem, Count: 8}}},
		mkey.Interleaved{Repeat: 9, Entries: []mkey.Entry{{Memory: mem}}},
		mkey.Interleaved{Repeat: math.MaxUint32},
	} {
		for _, s := range []*mkey.Signature{nil, {Memory: t10}, {Wire: t10}, {Memory: crc32, Wire: t10}} {
			k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: l, Signature: s, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 512)})
			send(t, k, 0, 0)
			receive(t, k, 0, nil)
			wantErr(t, second(k.NewReader(0, 16)), syscall.EFAULT)
			wantErr(t, second(k.NewWriter(0, 16)), syscall.EFAULT)
			if n, err := k.WireLen(); n != 0 || err != nil {
				t.Errorf("length %d, %v", n, err)
			}
		}
	}
}

// TestAccess checks access rights: the key must grant the operation of the peer or the
// owner, and the memory below it must grant local writes, along the whole path.
func TestAccess(t *testing.T) {
	const lw, rr, rw, ra = rdma.LocalWrite, rdma.RemoteRead, rdma.RemoteWrite, rdma.RemoteAtomic
	type open func(*mkey.Key) error
	tx := func(k *mkey.Key) error { return opened(k.NewReader(0, 8)) }
	rx := func(k *mkey.Key) error { return opened(k.NewWriter(0, 8)) }
	up := func(k *mkey.Key) error { return opened(k.NewWriter(0, 8)) }
	rtx := func(k *mkey.Key) error { return openedDoor(keydoor.Of(k).RemoteTX(0, 8, 0, false)) }
	rrx := func(k *mkey.Key) error { return openedDoor(keydoor.Of(k).RemoteRX(0, 8)) }
	atomic := func(k *mkey.Key) error { _, err := k.At(0, 8, ra); return errors.Join(err, k.Reach(0, 8, ra)) }
	for name, c := range map[string]struct {
		open     open
		key, mem rdma.Access
	}{
		"TX":       {tx, 0, 0},
		"RX":       {rx, lw, lw},
		"RXUpTo":   {up, lw, lw},
		"RemoteTX": {rtx, rr, 0},
		"RemoteRX": {rrx, rw, lw},
		"atomic":   {atomic, ra, lw},
	} {
		for rights := range rdma.Access(16) {
			// Remove the right of the key itself.
			k := newKey(t, mkey.KeyConfig{Access: rights, Layout: over(make([]byte, 8))})
			judge(t, name+" through the key", c.open(k), rights&c.key == c.key)
			// Remove the right of the memory.
			mem := &region{buf: make([]byte, 8), rights: rights}
			k = newKey(t, mkey.KeyConfig{Access: 15, Layout: mkey.List{{Memory: mem, Length: 8}}})
			if name != "atomic" { // At is called only for ranges that Reach has accepted
				judge(t, name+" through memory", c.open(k), rights&c.mem == c.mem)
			}
			// Remove the right of a nested key, and of the memory below it.
			inner := newKey(t, mkey.KeyConfig{Access: rights, Layout: over(make([]byte, 8))})
			k = newKey(t, mkey.KeyConfig{Access: 15, Layout: mkey.List{{Memory: inner, Length: 8}}})
			judge(t, name+" through a nested key", c.open(k), rights&c.mem == c.mem)
			inner = newKey(t, mkey.KeyConfig{Access: 15, Layout: mkey.List{{Memory: mem, Length: 8}}})
			k = newKey(t, mkey.KeyConfig{Access: 15, Layout: mkey.List{{Memory: inner, Length: 8}}})
			if name != "atomic" {
				judge(t, name+" through memory below a nested key", c.open(k), rights&c.mem == c.mem)
			}
		}
	}
}

// opened closes a stream if it was opened, and returns the error of opening it.
func opened(s io.Closer, err error) error {
	if err == nil {
		s.Close()
	}
	return err
}

// openedDoor is opened for a stream of package keydoor.
func openedDoor(s interface{ Close() }, err error) error {
	if err == nil {
		s.Close()
	}
	return err
}

func judge(t *testing.T, what string, err error, good bool) {
	t.Helper()
	if good != (err == nil) || err != nil && !errors.Is(err, syscall.EACCES) {
		t.Errorf("%s: %v, want it granted: %v", what, err, good)
	}
}

// TestReachIsExact checks that Reach is called for exactly the bytes that the transfer
// uses. Between the repetitions of a pattern, a failing Reach for more bytes must not
// matter.
func TestReachIsExact(t *testing.T) {
	whole := &region{buf: make([]byte, 100), rights: rdma.LocalWrite}
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: whole, Addr: 10, Length: 20}, {Memory: whole, Addr: 90, Length: 10}, {Memory: &region{}, Length: 5}}})
	must(k.NewWriter(15, 10)).Close()
	if want := [][2]uint64{{25, 5}, {90, 5}}; len(whole.reached) != 2 || whole.reached[0] != want[0] || whole.reached[1] != want[1] {
		t.Errorf("asked for %v, want %v", whole.reached, want)
	}
	wantErr(t, second(k.NewWriter(15, 20)), syscall.EACCES)

	// A strided entry whose gaps are in memory without the right.
	closed := &region{buf: make([]byte, 64)}
	checkered := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{
		{Memory: whole, Length: 8}, {Memory: closed, Length: 8}, {Memory: whole, Length: 8}, {Memory: closed, Length: 8}, {Memory: whole, Length: 8},
	}})
	for _, mem := range []mkey.Memory{checkered, onlyMemory{checkered}} {
		k = newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.Interleaved{Repeat: 3, Entries: []mkey.Entry{{Memory: mem, Count: 8, Skip: 8}}}})
		must(k.NewWriter(0, 24)).Close()
		must(k.NewWriter(3, 18)).Close()
		receive(t, k, 3, make([]byte, 18))
		k = newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.Interleaved{Repeat: 3, Entries: []mkey.Entry{{Memory: mem, Count: 9, Skip: 7}}}})
		wantErr(t, second(k.NewWriter(0, 27)), syscall.EACCES)
		must(k.NewWriter(0, 8)).Close()
		wantErr(t, second(k.NewWriter(9, 9)), syscall.EACCES)
	}
}

// onlyMemory hides that a Memory is a key.
type onlyMemory struct{ m mkey.Memory }

func (o onlyMemory) Reach(addr, n uint64, need rdma.Access) error { return o.m.Reach(addr, n, need) }
func (o onlyMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return o.m.At(addr, n, need)
}

// chain returns nested keys, the outermost first.
func chain(t *testing.T, n int) []*mkey.Key {
	keys := make([]*mkey.Key, n)
	var mem mkey.Memory = mkey.Bytes(pattern(32))
	for i := n - 1; i >= 0; i-- {
		keys[i] = must(create(mkey.BlockSignature, 4))
		err := configure(keys[i], update{Access: new(rdma.LocalWrite), Layout: mkey.List{{Memory: mem, Length: 16}, {Memory: mem, Addr: 16, Length: 16}}})
		if depth := n - i; depth > 8 {
			wantErr(t, err, syscall.EINVAL, "8 deep")
		} else if err != nil {
			t.Fatalf("%d keys on each other: %v", depth, err)
		}
		mem = keys[i]
	}
	return keys
}

func TestNestingDepth(t *testing.T) {
	keys := chain(t, 9)
	equal(t, "8 keys on each other", send(t, keys[1], 3, 20), pattern(32)[3:23])
	receive(t, keys[1], 0, pattern(32))
	if err := keys[1].Reach(0, 32, rdma.LocalWrite); err != nil {
		t.Error(err)
	}

	// A chain that becomes too long at its lower end is detected on use, from every
	// key above the allowed depth.
	keys = chain(t, 8)
	longer := chain(t, 1)[0]
	noErr(t, configure(keys[7], update{Layout: mkey.List{{Memory: longer, Length: 32}}}))
	wantErr(t, second(keys[0].NewReader(0, 1)), syscall.EINVAL, "8 deep")
	wantErr(t, second(keys[0].NewWriter(0, 1)), syscall.EINVAL, "8 deep")
	wantErr(t, keys[0].Reach(0, 1, 0), syscall.EINVAL, "8 deep")
	wantErr(t, second(keys[0].At(0, 1, 0)), syscall.EINVAL, "8 deep")
	send(t, keys[1], 0, 32)
}

func TestNestingCircle(t *testing.T) {
	create := func() *mkey.Key { return must(create(0, 4)) }
	on := func(k *mkey.Key) update { return update{Layout: mkey.List{{Memory: k, Length: 8}}} }
	a, b, c := create(), create(), create()
	wantErr(t, configure(a, on(a)), syscall.EINVAL, "circle")
	noErr(t, errors.Join(configure(a, on(b)), configure(b, on(c))))
	wantErr(t, configure(c, on(a)), syscall.EINVAL, "circle")
	wantErr(t, configure(c, on(b)), syscall.EINVAL, "circle")

	// The same with references, which are resolved on use.
	ref := &reference{}
	noErr(t, configure(c, update{Layout: mkey.List{{Memory: ref, Length: 8}}}))
	_, err := a.NewReader(0, 8)
	if !errors.Is(err, errGone) {
		t.Errorf("a reference to nothing: %v", err)
	}
	ref.key.Store(a)
	wantErr(t, second(a.NewReader(0, 8)), syscall.EINVAL, "circle")
	_, err = c.NewWriter(0, 8)
	if err == nil {
		t.Error("a circle of rights was not looked at")
	}
	d := create()
	wantErr(t, configure(d, on(a)), syscall.EINVAL, "circle")
	ref.key.Store(newKey(t, mkey.KeyConfig{Layout: over(pattern(8))}))
	equal(t, "a reference to a key", send(t, a, 0, 8), pattern(8))
	ref.key.Store(nil)
	ref.mem.Store(&region{buf: []byte("memory..")})
	equal(t, "a reference to memory", send(t, a, 0, 8), []byte("memory.."))
}

// reference represents a key or memory by its number, as on a device.
type reference struct {
	key atomic.Pointer[mkey.Key]
	mem atomic.Pointer[region]
}

func (r *reference) Target() (mkey.Memory, error) {
	if r.key.Load() == nil && r.mem.Load() == nil {
		return nil, errGone
	}
	if k := r.key.Load(); k != nil {
		return k, nil
	}
	return r.mem.Load(), nil
}

func (r *reference) Reach(addr, n uint64, need rdma.Access) error {
	return r.mem.Load().Reach(addr, n, need)
}

func (r *reference) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return r.mem.Load().At(addr, n, need)
}

// TestNestedAttributes checks that a key with signature or crypto attributes is refused
// in a layout, whether it had them from the start or got them later.
func TestNestedAttributes(t *testing.T) {
	signed := newKey(t, mkey.KeyConfig{Layout: over(pattern(64)), Signature: &mkey.Signature{Wire: t10}})
	coded := newKey(t, mkey.KeyConfig{Layout: over(pattern(64)), Crypto: crypto(true, 0, 512)})
	unset := must(create(mkey.CryptoOffload, 1))
	for _, k := range []*mkey.Key{signed, coded, unset} {
		wantErr(t, second(mkey.New(mkey.KeyConfig{Layout: mkey.List{{Memory: mkey.Bytes(nil)}, {Memory: k, Length: 8}}})), syscall.EINVAL, "signature or crypto attributes")
		between := must(create(0, 1))
		top := newKey(t, mkey.KeyConfig{Layout: mkey.List{{Memory: between, Length: 8}}})
		wantErr(t, configure(between, update{Layout: mkey.List{{Memory: k, Length: 8}}}), syscall.EINVAL)
		wantErr(t, second(top.NewReader(0, 8)), syscall.EINVAL, "free")
	}

	inner := must(create(mkey.BlockSignature, 1))
	outer := newKey(t, mkey.KeyConfig{Layout: mkey.List{{Memory: inner, Length: 8}}}) // still free
	noErr(t, configure(inner, update{Layout: over(pattern(8))}))
	open := must(outer.NewReader(0, 8))
	defer open.Close()
	noErr(t, configure(inner, update{Signature: &mkey.Signature{Memory: t10}}))
	wantErr(t, second(open.ReadAt(make([]byte, 8), 0)), syscall.EINVAL, "signature or crypto attributes")
	wantErr(t, second(outer.NewReader(0, 8)), syscall.EINVAL, "signature or crypto attributes")
	noErr(t, configure(inner, update{ResetSignature: true}))
	equal(t, "after the reset", send(t, outer, 0, 8), pattern(8))
	keydoor.Of(inner).Invalidate()
	wantErr(t, second(outer.NewReader(0, 8)), syscall.EINVAL, "free")
}

// TestWideNesting checks that keys which contain the next one many times are visited once
// each. A visit for each path would not end.
func TestWideNesting(t *testing.T) {
	var mem mkey.Memory = mkey.Bytes(make([]byte, 8))
	for range 8 {
		mem = newKey(t, mkey.KeyConfig{Layout: slices.Repeat(mkey.List{{Memory: mem, Length: 1}}, 4096)})
	}
	k := mem.(*mkey.Key)
	send(t, k, 100, 300)

	// Gaps are not followed through keys either.
	k = newKey(t, mkey.KeyConfig{Layout: mkey.Interleaved{Repeat: 2, Entries: []mkey.Entry{{Memory: newKey(t, mkey.KeyConfig{
		Layout: mkey.Interleaved{Repeat: math.MaxUint32, Entries: []mkey.Entry{{Memory: virtual{}, Count: 1, Skip: math.MaxUint32 >> 1}}}}), Count: 1, Skip: 1 << 31}}}})
	send(t, k, 0, 2)
}

// virtual is unlimited memory of zeros.
type virtual struct{}

var zeros [64 << 10]byte

func (virtual) Reach(addr, n uint64, _ rdma.Access) error { return nil }
func (virtual) At(addr, n uint64, _ rdma.Access) ([]byte, error) {
	return zeros[:min(n, uint64(len(zeros)))], nil
}

// TestHugeLayouts checks positions near the ends of the range of numbers.
func TestHugeLayouts(t *testing.T) {
	huge := mkey.List{{Memory: virtual{}, Addr: 0, Length: 1 << 60}, {Memory: virtual{}, Addr: 1<<63 + 5, Length: 1<<63 - 6}}
	pat := mkey.Interleaved{Repeat: math.MaxUint32, Entries: []mkey.Entry{{Memory: virtual{}, Count: math.MaxUint32 >> 1, Skip: 1}, {Memory: virtual{}, Count: math.MaxUint32 >> 1}}}
	for _, l := range []mkey.Layout{huge, pat} {
		for _, s := range []*mkey.Signature{nil, {Memory: t10}, {Wire: crc32}, {Memory: crc32, Wire: t10}} {
			k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: l, Signature: s})
			n, err := k.WireLen()
			if err != nil || n < 1<<55 || n > 1<<56 {
				t.Errorf("length %#x, %v", n, err)
			}
			stride := uint64(1)
			if s != nil && s.Wire != nil {
				stride = uint64(s.Wire.Stride())
			} else if s != nil {
				stride = 512
			}
			last := uint64(n) / stride * stride
			for _, off := range []uint64{0, stride, last / 2 / stride * stride, last - 4*stride} {
				send(t, k, off, 4*stride)
				receive(t, k, off, make([]byte, 4*stride))
			}
			for _, off := range []uint64{1 << 56, 1 << 57, 1 << 63, math.MaxUint64 / stride * stride, math.MaxUint64 - stride + 1} {
				for _, length := range []uint64{0, 1, stride, 1 << 56, math.MaxUint64} {
					if off == 1<<56 && length == 0 {
						continue
					}
					wantErr(t, second(keydoor.Of(k).TX(off, length)), syscall.EFAULT)
					wantErr(t, second(keydoor.Of(k).RXUpTo(off, length)), syscall.EFAULT)
				}
			}
		}
	}
}

// failing returns configurations that together use every path through the layers.
func failing() map[string]mkey.KeyConfig {
	t4096 := &sig.Format{Type: sig.T10DIF, BlockSize: 4096}
	configs := map[string]mkey.KeyConfig{
		"plain":      {},
		"signed":     {Signature: &mkey.Signature{Memory: crc32, Wire: t10}},
		"recut":      {Signature: &mkey.Signature{Memory: crc64, Wire: t4096}},
		"row C":      {Signature: &mkey.Signature{Wire: t10}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 520)},
		"row H":      {Signature: &mkey.Signature{Memory: t10}, Crypto: crypto(false, mkey.SignatureAfterCrypto, 520)},
		"row I":      {Signature: &mkey.Signature{Memory: crc64, Wire: t4096}, Crypto: crypto(false, mkey.SignatureAfterCrypto, 520)},
		"rows A, F":  {Crypto: crypto(false, mkey.SignatureAfterCrypto, 4096)},
		"short unit": {Crypto: crypto(true, mkey.SignatureAfterCrypto, 512)},
	}
	for name, c := range configs {
		c.Access = rdma.LocalWrite
		configs[name] = c
	}
	return configs
}

// TestMemoryFails checks that memory which disappears during a transfer causes an error
// of the stream, and no other damage.
func TestMemoryFails(t *testing.T) {
	const memory = 520 * 512 // both are multiples of all blocks and units above
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			mem := &region{buf: pattern(memory), rights: rdma.LocalWrite}
			var l mkey.List
			for i := range uint64(64) {
				l = append(l, mkey.Segment{Memory: mem, Addr: i * memory / 64, Length: memory / 64})
			}
			c.Layout = l
			k := newKey(t, c)
			n := must(k.WireLen())
			want := make([]byte, n)
			tx := must(k.NewReader(0, n))
			defer tx.Close()
			for _, lost := range []uint64{0, memory / 64, 37 * memory / 64, memory - 1} {
				mem.gone = func(addr uint64) bool { return addr+memory/64 > lost && addr <= lost }
				p := make([]byte, n)
				if _, err := tx.ReadAt(p, 0); !errors.Is(err, errGone) {
					t.Fatalf("read over what is gone at %d: %v", lost, err)
				}
				for off := n; off > 0; off = max(off, 5000) - 5000 { // backwards
					if _, err := tx.ReadAt(p[off:min(off+5000, n)], int64(off)); err != nil && !errors.Is(err, errGone) {
						t.Fatal(err)
					}
				}
				mem.gone = nil
				if _, err := tx.ReadAt(p, 0); err != nil {
					t.Fatalf("it came back: %v", err)
				}
				if lost == 0 {
					copy(want, p)
				}
				equal(t, "read again", p, want)
			}

			for _, lost := range []uint64{0, memory / 64, 37 * memory / 64, memory - 1} {
				rx := must(k.NewWriter(0, int64(n)))
				mem.gone = func(addr uint64) bool { return addr+memory/64 > lost && addr <= lost }
				if err := writeAll(rx, want); !errors.Is(err, errGone) {
					t.Fatalf("write over what is gone at %d: %v", lost, err)
				}
				mem.gone = nil
				if err := rx.Finish(); !errors.Is(err, errGone) {
					t.Errorf("finish after that: %v", err)
				}
				if _, err := rx.Write(nil); !errors.Is(err, errGone) {
					t.Errorf("write after that: %v", err)
				}
				rx.Close()
			}
			receive(t, k, 0, want)
			equal(t, "written again", send(t, k, 0, uint64(n)), want)
		})
	}
}

// TestMemoryInPieces checks that memory may return parts of a segment, but neither no
// bytes nor too many.
func TestMemoryInPieces(t *testing.T) {
	const memory = 520 * 16
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			whole := pattern(memory)
			c.Layout = over(whole)
			k := newKey(t, c)
			n := wholeJob(t, k)
			want := send(t, k, 0, n)
			receive(t, k, 0, want)
			for _, short := range []int{1, 7, 100, 519, 4096} {
				mem := &region{buf: pattern(memory), rights: rdma.LocalWrite, short: short}
				c.Layout = mkey.List{{Memory: mem, Length: memory}}
				k := newKey(t, c)
				equal(t, "TX", send(t, k, 0, n), want)
				clear(mem.buf)
				receive(t, k, 0, want)
				equal(t, "RX", mem.buf[:n/520*512], whole[:n/520*512])
			}
			for _, bad := range []badMemory{0, memory + 1} {
				c.Layout = mkey.List{{Memory: bad, Length: memory}}
				k := newKey(t, c)
				tx := must(k.NewReader(0, int64(n)))
				wantErr(t, second(tx.ReadAt(make([]byte, n), 0)), syscall.EFAULT, "gave")
				tx.Close()
				rx := must(k.NewWriter(0, int64(n)))
				wantErr(t, writeAll(rx, want), syscall.EFAULT, "gave")
				rx.Close()
			}
		})
	}
}

// badMemory returns a fixed number of bytes, however many are requested.
type badMemory int

func (badMemory) Reach(addr, n uint64, _ rdma.Access) error { return nil }
func (b badMemory) At(addr, n uint64, _ rdma.Access) ([]byte, error) {
	return make([]byte, b), nil
}
