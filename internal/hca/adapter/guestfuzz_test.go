package adapter_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// FuzzGuestRequests puts arbitrary blocks into the send queue of a guest with keys of every
// mode, or into its queue for UMRs. Every request must end, and the peer's memory changes only
// where its keys grant it. The first byte of a request's key selects one of the keys.
func FuzzGuestRequests(f *testing.F) {
	f.Add(false, recorded(f, recordedRegMR))
	f.Add(true, recorded(f, recordedRegMR))
	f.Add(false, append(recorded(f, recordedPI), recorded(f, recordedPSV)...))
	f.Add(false, append(recorded(f, recordedPI), recorded(f, recordedWrite)...))
	inv := recorded(f, "00000025 0000a408 00000028 00000001 80000000 00000000 00000000 20000080")
	f.Add(true, append(inv, make([]byte, 96)...))
	region := recorded(f, `00000025 0000a409 00000028 00000001 20000000 00020000 00000000 203e20c3
		00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00003c77 ffffff00 00000000 00000001
		000055f9 4d50c878 00000000 00001000 00000000 00000000 00000000 00000000
		00000000 00000000 0000000c 00000000 00000040 00000003 00000000 00001000`)
	f.Add(true, region)
	f.Add(false, region)
	parts := bytes.Clone(region) // a part of a list far behind its end
	parts[16] = 0x30
	binary.BigEndian.PutUint16(parts[22:], 0xffff)
	binary.BigEndian.PutUint32(parts[32:], 0xffffffff)
	f.Add(true, parts)
	f.Fuzz(func(t *testing.T, umr bool, b []byte) {
		if len(b) < 16 || len(b) > 60*64 {
			return
		}
		a, peer := fuzzPair(t)
		q := a.queue
		if umr {
			q = a.newQP(prm.QPServiceUMR)
			q.connect(nil)
		}
		keys := []uint32{a.dma, a.newMKey(prm.AccessModeMTT, 16, nil), a.newMKey(prm.AccessModeKLM, 516, nil), a.newMKey(prm.AccessModeKSM, 1<<20, nil), a.newPI(512, 8).number}
		secret := bytes.Repeat([]byte{0xa5}, 4096)
		hidden := peer.page()
		peer.mem.put(hidden, secret)
		// Cut the bytes into requests, with the sizes that they claim.
		for len(b) >= 16 {
			n := min(max(int(b[7]&0x3f)*16, 16), len(b)&^15)
			w := bytes.Clone(b[:n])
			b = b[n:]
			w[7] = byte(n / 16)
			if prm.Opcode(w[3]) == prm.OpUMR {
				put32(w, 12, keys[int(w[12])%len(keys)]&^0xff|uint32(w[15]))
			}
			if q.head+uint16(n/64)+2 > 62 {
				break
			}
			q.write(w)
		}
		last := q.head
		q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate).sized())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for {
			c, _ := prm.ParseCQE(q.wait())
			if c.Opcode != prm.CQESigErr && c.Counter == last {
				break
			}
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 512<<20 {
			t.Errorf("%d bytes allocated", grown)
		}
		if !bytes.Equal(peer.mem.get(hidden, 4096), secret) {
			t.Error("the peer's memory was changed without a key")
		}
	})
}

// fuzzPair is guestPair with QPs that give up soon.
func fuzzPair(t testing.TB) (a, b *guest) {
	a, b = unconnected(t)
	a.tries, b.tries, a.timeout, b.timeout = 1, 1, 6, 6
	a.queue.join(b.queue)
	return a, b
}

// FuzzGuestKey makes a key by a command with an arbitrary context and list, and uses it.
func FuzzGuestKey(f *testing.F) {
	for mode := range byte(4) {
		context := make([]byte, 64)
		context[2] = 0x3c | mode
		put32(context, 4, 0xffffff05)
		put64(context, 16, 0x123456000)
		put64(context, 24, 8192)
		put32(context, 52, 2)
		context[59] = 12
		f.Add(context, uint32(2), []byte{0, 0, 0, 0, 0, 0, 0x10, 3, 0, 0, 0, 0, 0, 0, 0x20, 3})
		context[60], context[0] = 0, 0x40
		f.Add(context, uint32(1<<31), []byte{1})
	}
	f.Fuzz(func(t *testing.T, context []byte, octowords uint32, list []byte) {
		if len(list) > 1<<16 {
			return
		}
		a, b := fuzzPair(t)
		in := command(prm.CmdCreateMKey, 0, 0x110)
		copy(in[0x10:0x50], context)
		prm.SetBits(in, 0x80+0x68, 24, uint64(a.pdn))
		prm.SetBits(in, 0x300, 32, uint64(octowords))
		out, err := a.ctx.Exec(0, append(in, list...), 16)
		if err != nil {
			return
		}
		key := prm.NumberOf(out)<<8 | uint32(in[0x17])
		start := prm.Bits(in, 0x100, 64)
		from := b.mem.alloc(8192)
		for _, op := range []prm.Opcode{prm.OpRead, prm.OpWrite} {
			b.queue.post(newWQE(op, 0, 0, prm.FlagCQUpdate).raddr(start, key).data(from, 8192, b.dma).sized())
			b.queue.wait()
		}
		destroy := command(prm.CmdDestroyMKey, 0, 16)
		prm.PutNumber(destroy, key>>8)
		if _, err := a.ctx.Exec(0, destroy, 16); err != nil {
			t.Error(err)
		}
	})
}
