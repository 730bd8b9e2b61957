package adapter_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestLimitOfObjects makes as many protection domains as the device announces, and one more. The other kinds with a
// limit are counted in the same place.
func TestLimitOfObjects(t *testing.T) {
	p := start(t, inproc.NewNetwork(nil), testAddr, options{})
	var last *adapter.PD
	for n, most := 1, int(p.dev.Attr().MaxPD); ; n++ { // p has one
		pd, err := p.ctx.AllocPD()
		if err == nil && n < most {
			last = pd
			continue
		}
		if !errors.Is(err, syscall.ENOMEM) || n != most {
			t.Fatalf("%d protection domains, the device announces %d: %v", n, most, err)
		}
		break
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ctx.AllocPD(); err != nil {
		t.Errorf("after one was freed: %v", err)
	}
}
