package engine

import (
	"slices"
	"testing"

	"github.com/softmkey/softmkey/rdma"
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
	elsewhere, xrc := &QP{pd: other}, &QP{pd: other, typ: rdma.XRCRecv}
	all := append(slices.Clone(qps), elsewhere, xrc)
	for _, qp := range append(all, all...) {
		qp.touch()
	}
	qps[0].untouch() // the last one takes its place
	qps[3].untouch()
	qps[3].untouch()
	if got, want := pd.touched.take(), []*QP{qps[2], qps[1]}; !slices.Equal(got, want) {
		t.Errorf("%d QPs of the PD, want %d", len(got), len(want))
	}
	(&QP{pd: pd}).untouch() // never touched
	if got := pd.touched.take(); len(got) != 0 {
		t.Errorf("%d QPs after take", len(got))
	}
	qps[1].touch()
	if got := pd.touched.take(); !slices.Equal(got, qps[1:2]) {
		t.Errorf("%d QPs, want the one that was touched again", len(got))
	}
	if got := other.touched.take(); !slices.Equal(got, []*QP{elsewhere}) {
		t.Errorf("%d QPs of the other PD, want 1", len(got))
	}
	for range 2 {
		if got := dev.xrc.copy(); !slices.Equal(got, []*QP{xrc}) {
			t.Errorf("%d XRC receive QPs, want 1", len(got))
		}
	}
}
