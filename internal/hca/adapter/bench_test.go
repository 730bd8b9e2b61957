package adapter_test

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// cryptoKey is the CREATE_MKEY of DPDK's crypto_mlx5.
func cryptoKey(pd uint32) []byte {
	in, set := mkeyCommand(0x110+4*16, pd, prm.AccessModeKLM)
	set(0x10, 1, 1)
	set(0x12, 4, 0xf)
	set(0x61, 1, 1)
	set(0x100, 32, 4)
	set(0x1a0, 32, 4)
	set(0x1e3, 2, 1)
	return in
}

// BenchmarkCreateMKey makes memory keys, on a context that has half a million in the end if
// b.N is that large.
func BenchmarkCreateMKey(b *testing.B) {
	p := lone(b)
	in := cryptoKey(p.pd.Number())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.ctx.Exec(0, in, 16); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDestroyMKey destroys them.
func BenchmarkDestroyMKey(b *testing.B) {
	p := lone(b)
	in := cryptoKey(p.pd.Number())
	all := make([]uint32, b.N)
	for i := range all {
		out, err := p.ctx.Exec(0, in, 16)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = prm.NumberOf(out)
	}
	b.ReportAllocs()
	b.ResetTimer()
	out := command(prm.CmdDestroyMKey, 0, 16)
	for _, n := range all {
		prm.PutNumber(out, n)
		if _, err := p.ctx.Exec(0, out, 16); err != nil {
			b.Fatal(err)
		}
	}
}
