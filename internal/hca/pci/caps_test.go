package pci

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestOptions chooses another AES-XTS engine for a guest. The guest's adapter announces it.
func TestOptions(t *testing.T) {
	for _, single := range []bool{false, true} {
		d := booted(t, Config{Options: adapter.Options{SingleBlock: single}})
		if got := d.dev.firmware().rdma.dev.Caps().SingleBlock; got != single {
			t.Errorf("the engine is a single-block one: %t, want %t", got, single)
		}
	}
}

// TestAtomicByteOrder sets how old values of atomics are stored, as Linux does: with a group that is
// zero otherwise. The other capabilities stay.
func TestAtomicByteOrder(t *testing.T) {
	d := newDriver(t, Config{})
	set := func(order uint64) prm.CommandStatus {
		_, out := d.exec(build(prm.CmdSetHCACap, capAtomic<<1, 0x10+capSize, [3]uint64{0x80 + atomicOrder, 2, order}), 16)
		return prm.CommandStatus(out[0])
	}
	if st := set(0); st != prm.CmdBadParam {
		t.Errorf("big endian: status %v", st)
	}
	if st := set(orderHost); st != prm.CmdOK {
		t.Fatalf("status %v", st)
	}
	_, out := d.exec(build(prm.CmdQueryHCACap, capAtomic<<1|1, 16), 0x10+capSize)
	if order, operations := prm.Bits(out[0x10:], atomicOrder, 2), prm.Bits(out[0x10:], 0x90, 16); order != orderHost || operations != 0xf {
		t.Errorf("byte order %d, operations %#x", order, operations)
	}
}
