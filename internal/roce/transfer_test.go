package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
)

// sizes are message lengths around the boundaries of packets.
func sizes(mtu int) []int {
	return []int{0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 1, 3 * mtu, 17*mtu + 5, 100 * mtu}
}

func TestEveryOperation(t *testing.T) {
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		if onePort && mtu != 1024 {
			continue // the payload of a packet is always insideMTU
		}
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("mtu %d ipv6 %v", mtu, ipv6), func(t *testing.T) {
				everyOperation(t, newPair(t, pairOptions{mtu: mtu, ipv6: ipv6, noGSO: mtu == 512, psn: [2]uint32{0xfffff0, 0x7ffff0}}))
			})
		}
	}
}

// everyOperation executes each operation at each size from side 0 to side 1.
func everyOperation(t *testing.T, p *pair) {
	a, b := p.mem[0], p.mem[1]
	mtu := p.qp[0].mtu()
	type check func()
	var checks []check
	works := 0
	post := func(w *Work) {
		p.post(0, w)
		works++
	}
	nextRecv := 0
	for i, n := range sizes(mtu) {
		data := pattern(n, uint64(i))
		key := uint32(1000 + i)
		region := make([]byte, n)
		b.keys[key] = region

		post(&Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: uint32(n), RKey: key})
		checks = append(checks, func() {
			if !bytes.Equal(region, data) {
				t.Errorf("WRITE of %d bytes: memory differs", n)
			}
		})

		for _, op := range []ibv.WROp{ibv.WRSend, ibv.WRSendImm, ibv.WRSendInv, ibv.WRWriteImm} {
			at := nextRecv
			nextRecv++
			b.recv(make([]byte, n+3))
			w := &Work{Op: op, Src: &source{b: data}, Length: uint32(n), Solicited: i%2 == 0, Imm: 0xabcd0000 + uint32(i)}
			want := RecvEvent{Op: ibv.WRSend, Length: uint32(n), Solicited: i%2 == 0}
			switch op {
			case ibv.WRSendImm:
				want.HasImm, want.Imm = true, w.Imm
			case ibv.WRSendInv:
				w.InvKey = uint32(5000 + i)
				b.keys[w.InvKey] = nil
				want.HasInv, want.InvKey = true, w.InvKey
			case ibv.WRWriteImm:
				w.RKey = uint32(2000 + i)
				b.keys[w.RKey] = make([]byte, n+10)
				w.RemoteAddr = 7
				want.Op, want.HasImm, want.Imm = ibv.WRWriteImm, true, w.Imm
			}
			post(w)
			checks = append(checks, func() {
				got := b.got[at]
				want.PSN = lastPSN(w)
				if got.ev != want {
					t.Errorf("%d of %d bytes: received %+v, want %+v", op, n, got.ev, want)
				}
				if op != ibv.WRWriteImm && !bytes.Equal(got.data, data) {
					t.Errorf("%d of %d bytes: data differ", op, n)
				}
				if op == ibv.WRWriteImm && !bytes.Equal(b.keys[w.RKey][7:7+n], data) {
					t.Errorf("%d of %d bytes: memory differs", op, n)
				}
				if op == ibv.WRSendInv && !b.stale[w.InvKey] {
					t.Errorf("key %d not invalidated", w.InvKey)
				}
			})
		}

		dst := make([]byte, n)
		post(&Work{Op: ibv.WRRead, Dst: &sink{b: dst}, Length: uint32(n), RKey: key})
		checks = append(checks, func() {
			if !bytes.Equal(dst, data) {
				t.Errorf("READ of %d bytes: data differ", n)
			}
		})

		counter := make([]byte, 24)
		binary.NativeEndian.PutUint64(counter[8:], 40)
		akey := uint32(3000 + i)
		b.keys[akey] = counter
		add := &Work{Op: ibv.WRFetchAdd, RKey: akey, RemoteAddr: 8, CompareAdd: 2}
		miss := &Work{Op: ibv.WRCmpSwap, RKey: akey, RemoteAddr: 8, CompareAdd: 40, Swap: 9}
		hit := &Work{Op: ibv.WRCmpSwap, RKey: akey, RemoteAddr: 8, CompareAdd: 42, Swap: 1 << 40}
		post(add)
		post(miss)
		post(&Work{Op: WRLocal})
		post(hit)
		checks = append(checks, func() {
			if add.Orig != 40 || miss.Orig != 42 || hit.Orig != 42 || binary.NativeEndian.Uint64(counter[8:]) != 1<<40 {
				t.Errorf("atomics: %d %d %d, then %d", add.Orig, miss.Orig, hit.Orig, binary.NativeEndian.Uint64(counter[8:]))
			}
		})
	}
	p.run(1 << 20)
	a.allSucceeded(works)
	if len(b.got) != nextRecv || b.curTaken != nextRecv {
		t.Fatalf("%d receives, %d taken, want %d", len(b.got), b.curTaken, nextRecv)
	}
	if want := 3 * len(sizes(mtu)); b.atomics != want {
		t.Errorf("%d atomics carried out, want %d", b.atomics, want)
	}
	for _, c := range checks {
		c()
	}
	p.idle()
}
