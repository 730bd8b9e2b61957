package adapter_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Requests that kernel 6.12.107's nvmet-rdma posted for one read with PI of 4096 bytes: the signature's
// UMR, two SET_PSV, and the WRITE. The numbers of objects are those of the recorded guest.
const (
	recordedPI = `00000225 0000cf10 00000060 000154a8
		a0000000 00040004 00000000 209e3343 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
		00008e00 ffffffa8 00000000 450000ab 00000000 00000000 00000000 00001040
		00000004 00000000 00000000 00000000 00000000 00000004 00000000 00000000
		00000208 00000400 00000008 00000002 02000200 0000ac04 00000000 0567a000
		00080008 0000ac04 00000000 0567b000 00000000 00000000 00000000 00000000
		90cfff01 00001000 00000151 00000150 00000000 00000000 00000000 00000000
		c0000000 00000000 01800000 00410000 c0000000 00000000 01800000 00410000`
	recordedPSV   = `00000620 0000cf02 00000022 00000000 00000150 00000000 00000000 00000000`
	recordedWrite = `00000808 0000cf03 00000028 00000000 00000000 00000000 000152a8 00000000 00001040 000154a8 00000000 00000000`
)

// piFormat is the integrity of one domain as the kernel's ib_sig_domain has it.
type piFormat struct {
	csum     bool // the guard is the IP checksum
	app      uint16
	ref      uint32
	seed     uint16
	appCheck uint16
	escape   bool
}

// piKey is an integrity MR of the kernel.
type piKey struct {
	g              *guest
	number         uint32
	memPSV         uint32
	wirePSV        uint32
	errors         uint32
	interval       int
	data, meta     uint64
	blocks         int
	mem, wire      *piFormat // nil: none
	check          uint8
	lkey, metaLKey uint32
}

func (g *guest) newPI(interval, blocks int) *piKey {
	g.t.Helper()
	in := command(prm.CmdCreatePSV, 0, 16)
	prm.SetBits(in, 0x40, 4, 2)
	prm.SetBits(in, 0x48, 24, uint64(g.pdn))
	out := g.command(in, 32)
	k := &piKey{g: g, memPSV: uint32(prm.Bits(out, 0x88, 24)), wirePSV: uint32(prm.Bits(out, 0xa8, 24)), errors: 1, interval: interval, blocks: blocks, check: 0xcf, lkey: g.dma, metaLKey: g.dma}
	k.number = g.newMKey(prm.AccessModeKLM, 4, func(set func(off, n int, v uint64)) { set(0x61, 1, 1); set(0x100, 32, 4) })
	k.data, k.meta = g.mem.alloc(interval*blocks), g.mem.alloc(8*blocks)
	return k
}

func (f *piFormat) inline(b []byte) {
	binary.BigEndian.PutUint16(b, 0xc000)
	binary.BigEndian.PutUint16(b[2:], f.app)
	put32(b, 4, f.ref)
	b[8], b[9], b[13] = 1, 0x80, 0x40
	if f.csum {
		b[8] = 2
	}
	if f.escape {
		b[13] |= 1
	}
	binary.BigEndian.PutUint16(b[14:], f.appCheck)
}

// umr builds the signature's UMR as mlx5_ib does (set_sig_data_segment, mlx5_set_bsf).
func (k *piKey) umr(access uint8) []byte {
	size := k.interval * k.blocks
	list := make([]byte, 64)
	total, octowords := size, uint32(4)
	if k.mem != nil {
		total += 8 * k.blocks
		put32(list, 0, uint32(k.interval+8))
		put32(list, 4, 0x400)
		put32(list, 8, uint32(k.blocks))
		put32(list, 12, 2)
		put32(list, 16, uint32(k.interval)<<16|uint32(k.interval))
		put32(list, 20, k.lkey)
		put64(list, 24, k.data)
		put32(list, 32, 8<<16|8)
		put32(list, 36, k.metaLKey)
		put64(list, 40, k.meta)
	} else {
		put32(list, 0, uint32(size))
		put32(list, 4, k.lkey)
		put64(list, 8, k.data)
	}
	bsf := make([]byte, 64)
	selector := map[int]byte{512: 1, 520: 2, 4096: 3, 4160: 4}[k.interval]
	bsf[0], bsf[1] = 0x80, k.check
	put32(bsf, 4, uint32(size))
	if k.mem != nil {
		bsf[3] = selector
		put32(bsf, 12, k.memPSV)
		k.mem.inline(bsf[0x30:])
	}
	if k.wire != nil {
		bsf[2] = selector
		if k.mem != nil {
			bsf[0] |= 0x10
			bsf[2] = 0
			if k.mem.csum == k.wire.csum {
				bsf[2] |= 0xc0
			}
			if k.mem.app == k.wire.app {
				bsf[2] |= 0x30
			}
			if k.mem.ref == k.wire.ref {
				bsf[2] |= 0x0f
			}
		}
		put32(bsf, 8, k.wirePSV)
		k.wire.inline(bsf[0x20:])
	}
	b := newWQE(prm.OpUMR, 0, k.number, 0x60).b
	b = append(b, make([]byte, 48+64)...)
	b[16] = 0xa0
	put32(b, 20, octowords<<16|4)
	put64(b, 24, 0x209e3343)
	ctx := b[64:]
	ctx[2] = access
	put32(ctx, 4, 0xffffff00|k.number&0xff)
	put32(ctx, 12, 1<<30|k.errors&1<<26|1<<24|k.g.pdn)
	put64(ctx, 24, uint64(total))
	put32(ctx, 32, 4)
	put32(ctx, 52, octowords)
	b = append(append(b, list...), bsf...)
	b[7] = 16
	return b
}

func (k *piKey) setPSV(psv uint32, f *piFormat) []byte {
	w := newWQE(prm.OpSetPSV, 0, 0, 0x20)
	w.b[11] = 0x22
	w.b = binary.BigEndian.AppendUint32(w.b, psv)
	w.b = append(w.b, 0, 0, 0, 0)
	w.b = binary.BigEndian.AppendUint16(w.b, f.seed)
	w.b = binary.BigEndian.AppendUint16(w.b, f.app)
	w.b = binary.BigEndian.AppendUint32(w.b, f.ref)
	return w.sized()
}

// register posts the requests of an integrity registration, and waits until they have taken effect:
// the peer's request does not follow it in a queue, as a host's command does.
func (k *piKey) register(access uint8) {
	requests := [][]byte{k.umr(access)}
	if k.mem != nil {
		requests = append(requests, k.setPSV(k.memPSV, k.mem))
	}
	if k.wire != nil {
		requests = append(requests, k.setPSV(k.wirePSV, k.wire))
	}
	k.g.queue.post(append(requests, newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate).sized())...)
	k.g.queue.done(prm.CQERequester)
}

// invalidate posts a LOCAL_INV. The next use of the key has another tag.
func (k *piKey) invalidate() {
	b := newWQE(prm.OpUMR, 0, k.number, 0x28).b
	b = append(b, make([]byte, 128-16)...)
	b[16] = 0x80
	put64(b, 24, prm.MaskFree)
	b[64], b[7] = 0x40, 8
	k.g.queue.post(b)
	k.g.queue.done(prm.CQERequester)
	k.number = k.number&^0xff | (k.number+1)&0xff
}

// wireLen returns the bytes of the wire domain.
func (k *piKey) wireLen() uint32 {
	n := k.interval * k.blocks
	if k.wire != nil {
		n += 8 * k.blocks
	}
	return uint32(n)
}

// guard computes a block's guard: bit by bit, independently of package sig.
func (f *piFormat) guard(b []byte) uint16 {
	if f.csum {
		sum := uint32(f.seed)
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
			sum = sum&0xffff + sum>>16
		}
		return ^uint16(sum)
	}
	crc := f.seed
	for _, x := range b {
		crc ^= uint16(x) << 8
		for range 8 {
			carry := crc>>15 != 0
			if crc <<= 1; carry {
				crc ^= 0x8bb7
			}
		}
	}
	return crc
}

// tuples returns the integrity of data.
func (f *piFormat) tuples(data []byte, interval int) (pi []byte) {
	for i := 0; i*interval < len(data); i++ {
		pi = binary.BigEndian.AppendUint16(pi, f.guard(data[i*interval:][:interval]))
		pi = binary.BigEndian.AppendUint16(pi, f.app)
		pi = binary.BigEndian.AppendUint32(pi, f.ref+uint32(i))
	}
	return pi
}

// TestKernelIntegrityRequests compares the requests of these tests with those that a kernel
// posted.
func TestKernelIntegrityRequests(t *testing.T) {
	if got := (&piFormat{}).guard([]byte("123456789")); got != 0xd0db {
		t.Fatalf("the CRC of the tests is %#x", got)
	}
	k := &piKey{g: &guest{pdn: 0xab}, number: 0x154a8, memPSV: 0x150, wirePSV: 0x151, errors: 1, interval: 512, blocks: 8, data: 0x567a000, meta: 0x567b000,
		mem: &piFormat{escape: true}, wire: &piFormat{escape: true}, check: 0xcf, lkey: 0xac04, metaLKey: 0xac04}
	want := recorded(t, recordedPI)
	got := k.umr(0x8e)
	copy(got, want[:8]) // index and QP
	if !bytes.Equal(got, want) {
		t.Errorf("UMR\n got %x\nwant %x", got, want)
	}
	want = recorded(t, recordedPSV)
	got = k.setPSV(k.memPSV, k.mem)
	copy(got, want[:8])
	if !bytes.Equal(got, want) {
		t.Errorf("SET_PSV\n got %x\nwant %x", got, want)
	}
}

// TestKernelIntegrity transfers blocks between two guests as nvmet and nvme do: the target
// writes to the host's key for a read, and reads from it for a write. Both check, insert or
// strip the integrity.
func TestKernelIntegrity(t *testing.T) {
	crc, sum := piFormat{app: 0x1234, ref: 100}, piFormat{csum: true, app: 0x1234, ref: 100}
	for _, test := range []struct {
		name                 string
		interval, blocks     int
		hostMem, wire, taMem *piFormat
	}{
		{"512, metadata on both sides", 512, 8, &crc, &crc, &crc},
		{"4096, metadata on both sides", 4096, 5, &crc, &crc, &crc},
		{"512, IP checksum in the host's memory", 512, 16, &sum, &crc, &crc},
		{"4096, IP checksum everywhere", 4096, 3, &sum, &sum, &sum},
		{"512, the host has no metadata", 512, 8, nil, &crc, &crc},
		{"4096, the host has no metadata", 4096, 4, nil, &crc, &crc},
		{"512, the target has no metadata", 512, 8, &crc, &crc, nil},
		{"512, no metadata on the wire", 512, 9, &crc, nil, &crc},
	} {
		t.Run(test.name, func(t *testing.T) {
			target, host := guestPair(t)
			tk, hk := target.newPI(test.interval, test.blocks), host.newPI(test.interval, test.blocks)
			tk.mem, tk.wire, hk.mem, hk.wire = test.taMem, test.wire, test.hostMem, test.wire
			data := make([]byte, test.interval*test.blocks)
			r := rand.NewChaCha8([32]byte{1})
			for round := range 4 {
				read := round%2 == 0 // the data goes from the target to the host
				from, to, op := tk, hk, prm.OpWrite
				if !read {
					from, to, op = hk, tk, prm.OpRead
				}
				r.Read(data)
				from.g.mem.put(from.data, data)
				if from.mem != nil {
					from.g.mem.put(from.meta, from.mem.tuples(data, test.interval))
				}
				hk.register(0xbe)
				tk.register(0x8e)
				target.queue.post(newWQE(op, 0, 0, prm.FlagCQUpdate).raddr(0, hk.number).data(0, tk.wireLen(), tk.number).sized())
				target.queue.done(prm.CQERequester)
				if got := to.g.mem.get(to.data, len(data)); !bytes.Equal(got, data) {
					t.Fatalf("round %d: other data", round)
				}
				if to.mem != nil {
					if got, want := to.g.mem.get(to.meta, 8*test.blocks), to.mem.tuples(data, test.interval); !bytes.Equal(got, want) {
						t.Fatalf("round %d: metadata\n got %x\nwant %x", round, got, want)
					}
				}
				hk.invalidate()
				tk.invalidate()
			}
		})
	}
}

// TestKernelIntegrityEscape reads blocks that were never written, whose tuples are all ones.
func TestKernelIntegrityEscape(t *testing.T) {
	f := piFormat{ref: 7, escape: true}
	target, host := guestPair(t)
	tk, hk := target.newPI(512, 8), host.newPI(512, 8)
	tk.mem, tk.wire, hk.mem, hk.wire = &f, &f, &f, &f
	ones := bytes.Repeat([]byte{0xff}, 64)
	target.mem.put(tk.meta, ones)
	hk.register(0xbe)
	tk.register(0x8e)
	target.queue.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(0, hk.number).data(0, tk.wireLen(), tk.number).sized())
	target.queue.done(prm.CQERequester)
	hk.invalidate()
	if got := host.mem.get(hk.meta, 64); !bytes.Equal(got, ones) {
		t.Errorf("tuples %x", got)
	}
}

// TestKernelIntegrityHelperKey has data and metadata in one key of pages, as the kernel does
// where they are not one physical piece each. The metadata does not begin its page, so that
// the key has a gap.
func TestKernelIntegrityHelperKey(t *testing.T) {
	f := piFormat{ref: 9}
	target, host := guestPair(t)
	const blocks, gap = 16, 0x600
	tk, hk := target.newPI(512, blocks), host.newPI(512, blocks)
	tk.mem, tk.wire, hk.mem, hk.wire = &f, &f, &f, &f
	helper := host.newMKey(prm.AccessModeMTT, 260, nil)
	pages := [3]uint64{host.page(), host.page(), host.page()}
	for tag := range uint32(3) { // the second time the key is in use
		reg := recorded(t, recordedRegMR)
		put32(reg, 12, helper|tag)
		put32(reg, 68, 0xffffff00|tag)
		put64(reg, 80, 0x3e5d000)
		put64(reg, 88, 0x2000+gap+8*blocks)
		reg[16] = 0x80
		for i, p := range pages {
			put64(reg, 128+8*i, p|3)
		}
		host.queue.post(reg)
		hk.lkey, hk.metaLKey, hk.data, hk.meta = helper|tag, helper|tag, 0x3e5d000, 0x3e5d000+0x2000+gap
		data := bytes.Repeat([]byte{byte(tag), 1, 2, 3}, 512*blocks/4)
		target.mem.put(tk.data, data)
		target.mem.put(tk.meta, f.tuples(data, 512))
		umr := hk.umr(0xbe)
		put64(umr, 64+24, 0x2000+gap+8*blocks) // Linux counts the gap
		host.queue.post(umr, hk.setPSV(hk.memPSV, &f), hk.setPSV(hk.wirePSV, &f), newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate).sized())
		host.queue.done(prm.CQERequester)
		tk.register(0x8e)
		target.queue.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(0, hk.number).data(0, tk.wireLen(), tk.number).sized())
		target.queue.done(prm.CQERequester)
		hk.invalidate()
		tk.invalidate()
		got := append(host.mem.get(pages[0], 4096), host.mem.get(pages[1], 4096)...)
		if !bytes.Equal(got, data) || !bytes.Equal(host.mem.get(pages[2]+gap, 8*blocks), f.tuples(data, 512)) {
			t.Fatal("the pages have other bytes")
		}
	}
}

// TestKernelIntegrityErrors damages a tuple or the data where it lies, and compares who
// reports it.
func TestKernelIntegrityErrors(t *testing.T) {
	crc := piFormat{app: 0x1234, ref: 100, appCheck: 0xffff}
	target, host := guestPair(t)
	tk, hk := target.newPI(512, 8), host.newPI(512, 8)
	hk.wire, tk.wire = &crc, &crc
	data := bytes.Repeat([]byte("a block's data; "), 512*8/16)
	const block = 5
	for _, test := range []struct {
		name     string
		damage   int // offset in the tuple of the block, or -1: the data
		syndrome uint16
		check    uint8
		found    bool
	}{
		{"data", -1, prm.SigErrGuard, 0xff, true},
		{"guard", 1, prm.SigErrGuard, 0xff, true},
		{"application tag", 3, prm.SigErrAppTag, 0xff, true},
		{"reference tag", 7, prm.SigErrRefTag, 0xff, true},
		{"application tag, not checked", 3, 0, 0xcf, false},
		{"guard, not checked", 0, 0, 0x0f, false},
	} {
		for _, read := range []bool{true, false} {
			for _, metadata := range []bool{true, false} { // on the receiving side
				t.Run(fmt.Sprintf("%s, read=%t, metadata=%t", test.name, read, metadata), func(t *testing.T) {
					target.t, host.t = t, t
					hk.mem, tk.mem, hk.check, tk.check = &crc, &crc, test.check, test.check
					from, to, op := tk, hk, prm.OpWrite
					if !read {
						from, to, op = hk, tk, prm.OpRead
					}
					if !metadata {
						to.mem = nil
					}
					bad := bytes.Clone(data)
					tuples := crc.tuples(data, 512)
					if test.damage < 0 {
						bad[block*512+17] ^= 0x40
					} else {
						tuples[8*block+test.damage] ^= 0x01
					}
					from.g.mem.put(from.data, bad)
					from.g.mem.put(from.meta, tuples)
					hk.register(0xbe)
					tk.register(0x8e)
					target.queue.post(newWQE(op, 0, 0, prm.FlagCQUpdate).raddr(0, hk.number).data(0, tk.wireLen(), tk.number).sized())
					// Both see the damage: the sender in its memory, the receiver on the
					// wire, since the tuple is copied.
					for _, k := range []*piKey{tk, hk} {
						if !test.found {
							continue
						}
						b := k.g.queue.wait()
						if b[63]>>4 != byte(prm.CQESigErr) {
							t.Fatalf("completion %x, want a report of a signature", b)
						}
						e := prm.ParseSigErrCQE(b)
						if e.Syndrome != test.syndrome || e.MKey>>8 != k.number>>8 || e.QPN != k.g.queue.number || e.Offset/520 != block {
							t.Errorf("%+v", e)
						}
						if e.Syndrome == prm.SigErrGuard {
							exp, act := uint16(binary.BigEndian.Uint32(b[16:])>>16), uint16(binary.BigEndian.Uint32(b[20:])>>16)
							if stored, computed := binary.BigEndian.Uint16(tuples[8*block:]), crc.guard(bad[block*512:][:512]); exp != stored || act != computed {
								t.Errorf("guard %#x and %#x, want %#x and %#x", exp, act, stored, computed)
							}
						}
						k.errors++
					}
					target.queue.done(prm.CQERequester)
					if got := to.g.mem.get(to.data, len(bad)); !bytes.Equal(got, bad) {
						t.Error("the data did not move on")
					}
					if to.mem != nil && !bytes.Equal(to.g.mem.get(to.meta, len(tuples)), tuples) {
						t.Error("the metadata did not move on")
					}
					hk.invalidate()
					tk.invalidate()
				})
			}
		}
	}
}
