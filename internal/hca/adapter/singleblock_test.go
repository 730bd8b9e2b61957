package adapter_test

import (
	"bytes"
	"encoding/hex"
	"sync/atomic"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestSingleBlock encrypts vectors 1 and 2 of IEEE Std 1619 with little-endian tweaks, as
// DPDK's driver does. The first vector's key has two equal halves, which the trace says.
func TestSingleBlock(t *testing.T) {
	var equal equalHalves
	p := newPair(t, options{singleBlock: true, tracer: &equal})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 0xf)
	out, err := p.a.ctx.Exec(0, command(prm.CmdQueryHCACap, 1, 16), 0x1010)
	if err != nil || prm.Bits(out, 0x80+0x3f1, 1) != 1 || prm.Bits(out, 0x80+0x3f2, 1) != 0 {
		t.Errorf("the capabilities of the single-block engine: %v", err)
	}
	for _, v := range []struct {
		key1, key2, data byte
		tweak            []byte
		want             string
	}{
		{0, 0, 0, nil, "917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e"},
		{0x11, 0x22, 0x44, []byte{0x33, 0x33, 0x33, 0x33, 0x33}, "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"},
	} {
		_, id := p.a.dek(append(bytes.Repeat([]byte{v.key1}, 16), bytes.Repeat([]byte{v.key2}, 16)...))
		p.a.mem.put(from, bytes.Repeat([]byte{v.data}, 512))
		k := p.a.newKey(keyKind{entries: 4, crypto: true})
		c := prm.CryptoBSF{Order: prm.EncryptedWireSignature, DataUnitSize: 512, DEK: id}
		copy(c.Tweak[:], v.tweak)
		k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: src.LKey(), Addr: from}).crypto(c).do(p.qa)
		p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(0, 512, k.number))
		p.qa.done()
		if got := hex.EncodeToString(p.b.mem.get(to, 32)); got != v.want {
			t.Errorf("ciphertext %s, want %s", got, v.want)
		}
	}
	if n := equal.Load(); n != 1 {
		t.Errorf("the trace names %d keys with equal halves, want 1", n)
	}
}

// equalHalves counts the records of data encryption keys with equal halves.
type equalHalves struct{ atomic.Int32 }

func (e *equalHalves) Trace(r *adapter.Record) {
	if r.Object != "dek" || r.Action != "create" {
		return
	}
	for _, f := range r.Fields {
		if f.Name == "equal_halves" && f.Value == true {
			e.Add(1)
		}
	}
}
