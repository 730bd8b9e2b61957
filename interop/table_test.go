package interop

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
)

// guard is the smallest number of bytes between two messages in memory, which must not
// change.
const guard = 16

// operation is a row of the table: the request and the completions on both sides.
type operation struct {
	op       peer.Op
	complete int  // opcode of the requester's completion
	receive  int  // opcode of the responder's completion, 0 for none
	imm, inv bool // the responder's completion has immediate data, or an invalidated key
	fromPeer bool // the data flows from the responder to the requester
}

var operations = []operation{
	{op: peer.Send, complete: 0, receive: 128},
	{op: peer.SendImm, complete: 0, receive: 128, imm: true},
	{op: peer.SendInvalidate, complete: 0, receive: 128, inv: true},
	{op: peer.Write, complete: 1},
	{op: peer.WriteImm, complete: 1, receive: 129, imm: true},
	{op: peer.Read, complete: 2, fromPeer: true},
}

// reporter receives the failures of a conversation, as a testing.T does.
type reporter interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// check ends a test with an error.
func check(t reporter, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// conversation runs rows of the table over one connection.
type conversation struct {
	t    reporter
	a, b end // requester and responder
	seed uint64
}

// sizesAround returns message lengths of zero, of a few bytes, and close to one, two and
// several packets.
func sizesAround(mtu int) []int {
	sizes := []int{0, 1, 3, 4, 7}
	for _, packets := range []int{1, 2, 5} {
		sizes = append(sizes, packets*mtu-1, packets*mtu, packets*mtu+1)
	}
	return sizes
}

// inFlight returns the number of messages of a size that are posted together.
func inFlight(size int) int {
	switch {
	case size > 1<<20:
		return 1
	case size > 64<<10:
		return 3
	default:
		return 24
	}
}

// row executes one operation with count messages of a size, and checks completions, data
// and the memory around it.
func (c *conversation) row(o operation, size, count int) {
	t := c.t
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s of %d × %d bytes from %v to %v: %s", o.op, count, size, c.a, c.b, fmt.Sprintf(format, args...))
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			fail("%v", err)
		}
	}
	stride := (size + guard + 7) &^ 7
	total := count * stride
	src, dst := c.a, c.b
	if o.fromPeer {
		src, dst = c.b, c.a
	}
	c.seed += 2
	check(src.fill(0, total, c.seed))
	check(dst.fill(0, total, c.seed+1))

	addr, rkey := c.b.region()
	w := peer.Work{
		Op: o.op, Count: count, ID: 1000, Len: size, Step: stride, SGEs: 1 + count%3,
		RemoteAddr: addr, RemoteStep: uint64(stride), RKey: rkey, Imm: 0xfffffff0,
	}
	if o.receive == 128 {
		check(c.b.post(peer.Work{Op: peer.Recv, Count: count, ID: 5000, Len: size + guard/2, Step: stride}))
	} else if o.receive == 129 {
		check(c.b.post(peer.Work{Op: peer.Recv, Count: count, ID: 5000}))
	}
	var keys []uint32
	if o.inv {
		// Each message revokes a key of its own, so each is posted separately.
		w.Count = 1
		for i := range count {
			key, err := c.b.invalidatable(i*stride, stride)
			check(err)
			keys = append(keys, key)
		}
		for i := range count {
			w.ID, w.Off, w.InvKey = uint64(1000+i), i*stride, keys[i]
			check(c.a.post(w))
		}
	} else {
		check(c.a.post(w))
	}

	done, err := c.a.wait(count)
	check(err)
	for i, wc := range done {
		if wc.ID != uint64(1000+i) || wc.Status != 0 || wc.Opcode != o.complete || (o.fromPeer && wc.Len != size) {
			fail("completion %d is %+v", i, wc)
		}
	}
	if o.receive != 0 {
		got, err := c.b.wait(count)
		check(err)
		for i, wc := range got {
			want := peer.Completion{ID: uint64(5000 + i), Opcode: o.receive, Len: size, QPN: c.b.qpn(), HasImm: o.imm, HasInv: o.inv}
			if o.imm {
				want.Imm = 0xfffffff0 + uint32(i)
			}
			if o.inv {
				want.InvKey = keys[i]
			}
			if wc != want {
				fail("received %+v, want %+v", wc, want)
			}
		}
	}

	want, sent := pattern(total, c.seed+1), pattern(total, c.seed)
	for at := 0; at < total; at += stride {
		copy(want[at:at+size], sent[at:])
	}
	crc, err := dst.crc(0, total)
	check(err)
	if crc != crc32.ChecksumIEEE(want) {
		c.explain(dst, want, stride)
		fail("wrong bytes")
	}
}

// pattern returns the first n bytes of the pattern of a seed.
func pattern(n int, seed uint64) []byte {
	p := make([]byte, n)
	peer.Pattern(p, seed, 0)
	return p
}

// explain describes the first difference between memory and its expected contents.
func (c *conversation) explain(e end, want []byte, stride int) {
	c.t.Helper()
	got := make([]byte, len(want))
	if err := e.read(0, got); err != nil {
		c.t.Error(err)
		return
	}
	if i := firstDifference(got, want); i < len(got) {
		c.t.Errorf("first wrong byte: message %d, offset %d: %#02x, want %#02x", i/stride, i%stride, got[i], want[i])
	}
}

// atomics increments a word of the responder with many operations in flight, swaps it,
// and fails to swap it.
func (c *conversation) atomics() {
	t := c.t
	t.Helper()
	const count, at, start, step = 40, 1 << 16, 0xffff_ffff_ffff_fff0, 7
	word := func(e end, off int) uint64 {
		t.Helper()
		var b [8]byte
		check(t, e.read(off, b[:]))
		return binary.LittleEndian.Uint64(b[:]) // byte order of both processors
	}
	done := func(n, opcode int) {
		t.Helper()
		got, err := c.a.wait(n)
		check(t, err)
		for i, wc := range got {
			if wc.Status != 0 || wc.Opcode != opcode || wc.ID != uint64(i) {
				t.Fatalf("atomic completion %d is %+v", i, wc)
			}
		}
	}
	addr, rkey := c.b.region()
	check(t, c.b.write(at, binary.LittleEndian.AppendUint64(nil, start)))

	check(t, c.a.post(peer.Work{Op: peer.FetchAdd, Count: count, Len: 8, Step: 8, RemoteAddr: addr + at, RKey: rkey, Compare: step}))
	done(count, 4)
	value := uint64(start)
	for i := range count {
		if got := word(c.a, 8*i); got != value {
			t.Fatalf("fetch and add %d from %v to %v fetched %#x, want %#x", i, c.a, c.b, got, value)
		}
		value += step
	}
	swap := peer.Work{Op: peer.CompareSwap, Len: 8, RemoteAddr: addr + at, RKey: rkey, Compare: value, Swap: 0x0123456789abcdef}
	for _, want := range []uint64{value, swap.Swap} { // the second swap finds the value of the first
		check(t, c.a.post(swap))
		done(1, 3)
		if got := word(c.a, 0); got != want {
			t.Fatalf("compare and swap from %v to %v fetched %#x, want %#x", c.a, c.b, got, want)
		}
	}
	if got := word(c.b, at); got != swap.Swap {
		t.Fatalf("the swapped word holds %#x", got)
	}
}

// table executes every operation with every size over one connection, in both directions.
func table(t reporter, a, b end, sizes []int) {
	t.Helper()
	for i, ends := range [][2]end{{a, b}, {b, a}} {
		c := conversation{t: t, a: ends[0], b: ends[1], seed: uint64(i) << 32}
		for _, size := range sizes {
			for _, o := range operations {
				c.row(o, size, inFlight(size))
			}
		}
		c.atomics()
	}
}

// TestOperationsAndSizes transfers data between our device and the kernel, with every operation and
// sizes near every packet boundary, in both directions.
func TestOperationsAndSizes(t *testing.T) {
	n := newNetwork(t)
	families(t, func(t *testing.T, v6 bool) {
		mtus := []int{256, 512, 1024, 2048, 4096}
		if v6 && testing.Short() {
			mtus = []int{1024} // the packets differ from IPv4's only in their headers
		}
		for _, mtu := range mtus {
			t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) { runTable(t, n, v6, mtu) })
		}
	})
}

// runTable runs the table between our device and the guest.
func runTable(t *testing.T, n *network, v6 bool, mtu int) {
	a, b := n.open(t, v6)
	c := peer.Defaults()
	c.MTU = mtu
	join(t, a, b, v6, c)
	sizes := append(sizesAround(mtu), 64<<10+1)
	if !testing.Short() {
		sizes = append(sizes, 17*mtu-1, 17*mtu, 1<<20-1, 1<<20, 4<<20+5, 16<<20)
	}
	table(t, a, b, sizes)
}
