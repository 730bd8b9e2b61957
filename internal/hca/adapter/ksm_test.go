package adapter_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestUMRKeepsContext checks that a UMR changes the attributes that its mask names: a key keeps
// the page size and the length that CREATE_MKEY gave it.
func TestUMRKeepsContext(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		const page, n = 4096, 3
		p := newPair(t, o)
		mr, at := p.b.mr(2*n*page, 0xf)
		k := p.b.newKey(keyKind{entries: n, logPage: 12, length: n * page})
		for round, mask := range []uint64{prm.MaskLen, 0} {
			first := at + uint64(round*n*page)
			u := k.configure().access(rwAccess)
			var list []prm.Data
			for i := range n {
				list = append(list, prm.Data{Addr: first + uint64((n-1-i)*page), Length: page, LKey: mr.LKey()})
			}
			u.list(list...)
			u.mask = u.mask&^prm.MaskLen | mask
			u.do(p.qb)
			want := pattern(200, byte(7+round))
			p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(page-100, k.number).inline(want))
			p.qa.done()
			got := append(p.b.mem.get(first+n*page-100, 100), p.b.mem.get(first+(n-2)*page, 100)...)
			if !bytes.Equal(got, want) {
				t.Errorf("mask %#x: the bytes are at other places", mask)
			}
		}
		// The length did not change: what lies behind is refused.
		p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(n*page, k.number).inline([]byte("x")))
		p.qa.fails("completion", prm.SyndromeRemoteAccess)
	})
}
