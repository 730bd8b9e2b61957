package pci

import (
	"bytes"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestDoorbellWithoutLeave rings the command queue when the function may not access memory, has no
// queue, or does not own the entry. Nothing is written, no interrupt is raised, and the function stays
// healthy: it executes the next command.
func TestDoorbellWithoutLeave(t *testing.T) {
	const size = 64 << 10 // of the memory that is looked at, from each of the two addresses
	for _, test := range []struct {
		name  string
		do    func(d *driver)
		entry byte // the last byte of the entries
	}{
		{"after a reset", func(d *driver) { d.dev.Reset() }, entryOwned},
		{"after a reset that left bus mastering on", func(d *driver) { d.dev.Reset(); d.setMaster(true) }, entryOwned},
		{"bus mastering off", func(d *driver) { d.setMaster(false) }, entryOwned},
		{"queue at address 0", func(d *driver) { d.write32(regQueueHigh, 0); d.write32(regQueueLow, 0) }, entryOwned},
		{"the driver's entry", func(*driver) {}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := booted(t, Config{})
			test.do(d)
			e := bytes.Repeat([]byte{0xa4}, entrySize)
			e[0], e[entryStatus] = entryType, 0xa4|test.entry
			for slot := range uint64(1 << queueLogEntries) {
				d.put(slot*entrySize, e)
				d.put(driverMemory+slot*entrySize, e)
			}
			before := [2][]byte{make([]byte, size), make([]byte, size)}
			after := [2][]byte{make([]byte, size), make([]byte, size)}
			read := func(into *[2][]byte) {
				for i, addr := range []uint64{0, driverMemory} {
					fatal.If(t, d.mem.Read(addr, into[i]))
				}
			}
			read(&before)
			raised := d.interrupts(0)
			d.write32(regDoorbell, 0xffffffff)
			d.settle()
			read(&after)
			for i := range before {
				if !bytes.Equal(before[i], after[i]) {
					t.Fatalf("memory %d was written", i)
				}
			}
			if n := d.interrupts(0) - raised; n != 0 {
				t.Errorf("%d interrupts", n)
			}
			if h := d.read32(regHealthSynd); h != 0 {
				t.Errorf("health %#x", h)
			}
			d.start()
			if status, out := d.exec(build(prm.CmdQueryISSI, 0, 16), 112); status != deliverOK || out[0] != 0 {
				t.Errorf("the next command: delivery status %#x, answer %x", status, out[:8])
			}
		})
	}
}

// TestEventsWithoutLeave reports events while the function is not a bus master. They are lost without
// an interrupt, and the queue takes the next one.
func TestEventsWithoutLeave(t *testing.T) {
	d := booted(t, Config{})
	fw := d.dev.firmware()
	d.setMaster(false)
	before := d.interrupts(0)
	for range 3 {
		fw.eqs.event(eventCommand, 0, make([]byte, 32))
	}
	if n := d.interrupts(0) - before; n != 0 {
		t.Errorf("%d interrupts without bus mastering", n)
	}
	d.setMaster(true)
	fw.eqs.event(eventCommand, 0, make([]byte, 32))
	if n := d.interrupts(0) - before; n != 1 {
		t.Errorf("%d interrupts with bus mastering, want 1", n)
	}
}

// TestAccessEnds clears Bus Master Enable while the guest's memory is written: when the write to the
// configuration space has returned, no access is under way.
func TestAccessEnds(t *testing.T) {
	d := newDriver(t, Config{})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := byte(0); ; n++ {
			select {
			case <-stop:
				return
			default:
				d.dev.dma.Write(driverMemory, bytes.Repeat([]byte{n}, 4096))
			}
		}
	}()
	for range 50 {
		d.setMaster(false)
		var a, b [4096]byte
		fatal.If(t, d.mem.Read(driverMemory, a[:]))
		time.Sleep(100 * time.Microsecond)
		fatal.If(t, d.mem.Read(driverMemory, b[:]))
		if a != b {
			t.Error("memory was written after bus mastering ended")
			break
		}
		d.setMaster(true)
	}
	close(stop)
	<-done
}
