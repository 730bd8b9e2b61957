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
		{"tag", unsafe.Offsetof(r.tag), 96},
		{"step", unsafe.Offsetof(r.step), 104},
		{"action", unsafe.Offsetof(r.action), 112},
		{"diff", unsafe.Offsetof(r.diff), 120},
		{"count", unsafe.Offsetof(r.count), 128},
		{"crcConsts.inverse", unsafe.Offsetof(c.inverse), 0},
		{"crcConsts.poly", unsafe.Offsetof(c.poly), 8},
		{"crcConsts.top", unsafe.Offsetof(c.top), 16},
		{"swapConsts.quotient", unsafe.Offsetof(s.quotient), 0},
		{"swapConsts.poly", unsafe.Offsetof(s.poly), 8},
		{"matrices", unsafe.Sizeof(m.planes[0]), 4224},
		{"t10Table.positions", unsafe.Offsetof(m.positions) - unsafe.Offsetof(m.planes), 8448},
	} {
		if o.got != o.want {
			t.Errorf("%s is at %d, assembly has %d", o.name, o.got, o.want)
		}
	}
}
