package engine

import (
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
)

// TestTouched checks that a QP is in the list of its PD once, that closed ones leave it wherever
// they stand, and that XRC receive QPs stay in the list of the device.
func TestTouched(t *testing.T) {
	dev := &Device{}
	pd, other := &PD{dev: dev}, &PD{dev: dev}
	var qps []*QP
	for range 4 {
		qps = append(qps, &QP{pd: pd})
	}
	elsewhere, xrc := &QP{pd: other}, &QP{pd: other, typ: ibv.XRCRecv}
	all := append(slices.Clone(qps), elsewhere, xrc)
	for _, qp := range append(all, all...) {
		qp.touch()
	}
	qps[0].untouch() // the last one takes its place
	qps[3].untouch()
	qps[3].untouch()
	// names returns the QPs as indices in all.
	names := func(qps []*QP) (at []int) {
		for _, qp := range qps {
			at = append(at, slices.Index(all, qp))
		}
		return at
	}
	if got, want := names(pd.touched.take()), []int{2, 1}; !slices.Equal(got, want) {
		t.Errorf("QPs 0 and 3 were closed: the list of the PD has QPs %v, want %v", got, want)
	}
	(&QP{pd: pd}).untouch() // never touched
	if got := pd.touched.take(); len(got) != 0 {
		t.Errorf("after take the list has QPs %v, want none", names(got))
	}
	qps[1].touch()
	if got := pd.touched.take(); !slices.Equal(got, qps[1:2]) {
		t.Errorf("after QP 1 was touched again, the list has QPs %v, want only that one", names(got))
	}
	if got := other.touched.take(); !slices.Equal(got, []*QP{elsewhere}) {
		t.Errorf("the list of the other PD has QPs %v, want only QP 4", names(got))
	}
	for range 2 {
		if got := dev.xrc.snapshot(); !slices.Equal(got, []*QP{xrc}) {
			t.Errorf("the list of the device has QPs %v, want only QP 5, also after a snapshot", names(got))
		}
	}
}
