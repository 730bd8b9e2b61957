package adapter_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// transaction sets a transaction signature in the key's first PSV.
func (u *umr) transaction(b prm.TransactionBSF) *umr {
	u.bsf = make([]byte, prm.BSFSize)
	b.Put(u.bsf)
	return u
}

// setPSV is a SET_PSV that loads the register of a transaction signature.
func setPSV(psv, register uint32) *wqe {
	return newWQE(prm.OpSetPSV, 0, 0, prm.FlagCQUpdate).
		bytes(byte(psv>>24), byte(psv>>16), byte(psv>>8), byte(psv), 0, 0, 0, 0).
		bytes(byte(register>>24), byte(register>>16), byte(register>>8), byte(register), 0, 0, 0, 0)
}

// TestTransaction reads vectors of RFC 3720 (B.4) through keys with transaction signatures: one
// key and several on a PSV, the CRC behind the data and alone, with a register that a SET_PSV
// loads, and with keys that are configured again and again.
func TestTransaction(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.b.mr(4096, 1)
		dst, to := p.a.mr(4096, 1)
		a, b := p.b.newKey(keyKind{entries: 4, signature: true}), p.b.newKey(keyKind{entries: 4, signature: true})
		conf := func(k *key, off, n uint32, init, gen bool) {
			t.Helper()
			k.configure().access(rwAccess).list(prm.Data{Addr: from + uint64(off), Length: n, LKey: src.LKey()}).
				transaction(prm.TransactionBSF{Length: n, Init: init, Generate: gen, PSV: a.mem}).do(p.qb)
		}
		read := func(k *key, at uint64, n uint32) []byte {
			t.Helper()
			p.a.mem.put(to, make([]byte, n))
			p.qa.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(at, k.number).data(to, n, dst.LKey()))
			p.qa.done()
			return p.a.mem.get(to, int(n))
		}
		crc := func(what string, got []byte, want string) {
			t.Helper()
			if hex.EncodeToString(got) != want {
				t.Errorf("%s: %x, want %s", what, got, want)
			}
		}
		for _, v := range []struct {
			data []byte
			crc  string
		}{{make([]byte, 32), "aa36918a"}, {bytes.Repeat([]byte{0xff}, 32), "43aba862"}} {
			p.b.mem.put(from, v.data)
			conf(a, 0, 32, true, true)
			crc("one key", read(a, 0, 36), hex.EncodeToString(v.data)+v.crc)
			// Two keys, and then the CRC alone.
			conf(a, 0, 10, true, false)
			conf(b, 10, 22, false, true)
			read(a, 0, 10)
			read(b, 0, 22)
			crc("two keys, the CRC alone", read(b, 22, 4), v.crc)
			// After an error the register is loaded, and the rest of the data is read.
			conf(a, 0, 10, true, false)
			read(a, 0, 10)
			p.qb.post(setPSV(a.mem, 0xffffffff))
			p.qb.done()
			conf(a, 0, 32, false, true)
			crc("after SET_PSV", read(a, 0, 36)[32:], v.crc)
		}

		// A WRITE to the key is not supported, and is refused.
		p.qa.post(newWQE(prm.OpWrite, 0, 0, 0).raddr(0, a.number).data(to, 8, dst.LKey()))
		p.qa.fails("a WRITE", prm.SyndromeRemoteAccess)
	})
}

// TestTransactionRefused configures keys with transaction signatures that are not supported.
func TestTransactionRefused(t *testing.T) {
	for name, change := range map[string]func(b []byte, p *uint32){
		"seed of zeros":        func(b []byte, _ *uint32) { b[24] = 0x41 },
		"another format":       func(b []byte, _ *uint32) { b[24] = 0x20 },
		"the memory domain":    func(b []byte, _ *uint32) { b[16] |= 2 },
		"the memory's format":  func(b []byte, _ *uint32) { b[28] = 0x40 },
		"block signatures":     func(b []byte, _ *uint32) { b[2] = 1 },
		"a block's format":     func(b []byte, _ *uint32) { b[8] = 0x40 },
		"a check mask":         func(b []byte, _ *uint32) { b[1] = 0xf0 },
		"the same blocks":      func(b []byte, _ *uint32) { b[0] |= 0x10 },
		"a reserved byte":      func(b []byte, _ *uint32) { b[21] = 1 },
		"another length":       func(b []byte, _ *uint32) { b[7]++ },
		"a PSV that is absent": func(_ []byte, psv *uint32) { *psv = 0xabcdef },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, options{})
			src, from := p.b.mr(64, 1)
			k := p.b.newKey(keyKind{entries: 4, signature: true})
			psv := k.mem
			u := k.configure().access(rwAccess).list(prm.Data{Addr: from, Length: 32, LKey: src.LKey()})
			change(make([]byte, prm.BSFSize), &psv)
			u.transaction(prm.TransactionBSF{Length: 32, Init: true, Generate: true, PSV: psv})
			change(u.bsf, new(uint32))
			p.qb.post(u.wqes()...)
			if c := p.qb.send.waitCQE(); c.Opcode != prm.CQERequesterErr {
				t.Errorf("accepted: %+v", c)
			}
		})
	}
}
