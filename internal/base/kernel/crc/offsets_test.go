//go:build (amd64 || arm64) && !purego

package crc

import (
	"testing"
	"unsafe"
)

// The generators write offsets as numbers; this test compares them with the types.
func TestOffsets(t *testing.T) {
	var (
		r run
		c crcConsts
		s swapConsts
		m t10Table

		c8 crcPhase
		t8 t10Phase
		h4 halfPhase
	)
	for _, o := range []struct {
		name string
		got  uintptr
		want uintptr
	}{
		{"want", unsafe.Offsetof(r.want), 0},
		{"src", unsafe.Offsetof(r.src), 8},
		{"dst", unsafe.Offsetof(r.dst), 16},
		{"fields", unsafe.Offsetof(r.fields), 24},
		{"srcStride", unsafe.Offsetof(r.srcStride), 32},
		{"dstStride", unsafe.Offsetof(r.dstStride), 40},
		{"fieldStride", unsafe.Offsetof(r.fieldStride), 48},
		{"n", unsafe.Offsetof(r.n), 56},
		{"size", unsafe.Offsetof(r.size), 64},
		{"table", unsafe.Offsetof(r.table), 72},
		{"consts", unsafe.Offsetof(r.consts), 80},
		{"fix", unsafe.Offsetof(r.fix), 88},
		{"lines", unsafe.Offsetof(r.lines), 96},
		{"tag", unsafe.Offsetof(r.tag), 104},
		{"step", unsafe.Offsetof(r.step), 112},
		{"action", unsafe.Offsetof(r.action), 120},
		{"diff", unsafe.Offsetof(r.diff), 128},
		{"values", unsafe.Offsetof(r.values), 136},
		{"count", unsafe.Offsetof(r.count), 144},
		{"groups", unsafe.Offsetof(r.groups), 152},
		{"crcConsts.inverse", unsafe.Offsetof(c.inverse), 0},
		{"crcConsts.poly", unsafe.Offsetof(c.poly), 8},
		{"crcConsts.top", unsafe.Offsetof(c.top), 16},
		{"swapConsts.quotient", unsafe.Offsetof(s.quotient), 0},
		{"swapConsts.poly", unsafe.Offsetof(s.poly), 8},
		{"matrices", unsafe.Sizeof(m.planes[0]), 4224},
		{"t10Table.power", unsafe.Offsetof(m.power), 8448},
		{"t10Consts.lastLow", unsafe.Offsetof(m.consts.lastLow), 256},
		{"t10Consts.lastHigh", unsafe.Offsetof(m.consts.lastHigh), 272},
		{"t10Consts.fold", unsafe.Offsetof(m.consts.fold), 288},
		{"t10Consts.foldPower", unsafe.Offsetof(m.consts.foldPower), 352},
		{"crcPhase", unsafe.Sizeof(c8), 64 + 512},
		{"crcPhase.constants", unsafe.Offsetof(c8.constants), 64},
		{"t10Phase", unsafe.Sizeof(t8), 64 + 2*512},
		{"t10Phase.constants", unsafe.Offsetof(t8.constants), 64},
		{"halfPhase", unsafe.Sizeof(h4), 192 + 512},
		{"halfPhase.tail", unsafe.Offsetof(h4.tail), 64},
		{"halfPhase.shift", unsafe.Offsetof(h4.shift), 128},
		{"halfPhase.constants", unsafe.Offsetof(h4.constants), 192},
	} {
		if o.got != o.want {
			t.Errorf("%s is at %d, assembly has %d", o.name, o.got, o.want)
		}
	}
}
