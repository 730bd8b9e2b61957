package pci

import (
	"bytes"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/recorded"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// driver is the part of mlx5_core that executes commands. Its queue lies above the memory
// that recorded boots name.
type driver struct {
	t   *testing.T
	dev *Device
	mem guestmem.Map
	// deaf is whether the driver handles no events.
	deaf bool

	mu     sync.Mutex
	raised [vectors]int
}

const (
	driverMemory = 1 << 32
	driverBoxes  = driverMemory + 0x10000
	bootMemory   = 512 << 20 // of the machine that was recorded; most pages are never touched
)

// machine is the memory of the machine, which all tests share: it takes long to clear, and
// no test reads what it has not written.
var machine = sync.OnceValue(func() []byte { return make([]byte, bootMemory) })

// Raise implements transport.Interrupts.
func (d *driver) Raise(vector int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.raised[vector]++
}

func (d *driver) interrupts(vector int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.raised[vector]
}

func newDriver(t *testing.T, cfg Config) *driver {
	d := &driver{t: t}
	for _, r := range []guestmem.Range{{Addr: 0, Size: bootMemory, View: machine()}, {Addr: driverMemory, Size: 4 << 20, View: make([]byte, 4<<20)}} {
		fatal.If(t, d.mem.Add(r))
	}
	if cfg.MAC == nil {
		cfg.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	}
	d.dev = New(cfg)
	d.dev.Attach(&d.mem, d)
	t.Cleanup(d.dev.Close)
	d.start()
	return d
}

// start makes the device a bus master, and tells it where the queue is.
func (d *driver) start() {
	d.setMaster(true)
	d.write32(regQueueHigh, driverMemory>>32)
	d.write32(regQueueLow, driverMemory&0xffffffff)
}

// setMaster sets the bit Bus Master Enable.
func (d *driver) setMaster(on bool) {
	var command [2]byte
	if on {
		command[0] = commandMaster
	}
	d.dev.WriteConfig(configCommand, command[:])
}

func (d *driver) write32(off uint64, v uint32) {
	var b [4]byte
	be.PutUint32(b[:], v)
	d.dev.WriteBAR(off, b[:])
}

func (d *driver) read32(off uint64) uint32 {
	var b [4]byte
	d.dev.ReadBAR(off, b[:])
	return be.Uint32(b[:])
}

// put writes to the guest's memory.
func (d *driver) put(addr uint64, b []byte) {
	d.t.Helper()
	fatal.If(d.t, d.mem.Write(addr, b))
}

// boxes lays data out in mailboxes and returns the address of the first.
func (d *driver) boxes(at uint64, n int, data []byte, token byte) uint64 {
	if n <= 0 {
		return 0
	}
	first := at
	for i := uint32(0); n > 0; i++ {
		var box [boxSize]byte
		if len(data) > 0 {
			data = data[copy(box[:boxData], data):]
		}
		if n -= boxData; n > 0 {
			be.PutUint64(box[boxNext:], at+1024)
		}
		be.PutUint32(box[boxNumber:], i)
		box[boxToken] = token
		d.put(at, box[:])
		at += 1024
	}
	return first
}

// build returns a command of n bytes. A field is an offset and a width in bits, and a value.
func build(op prm.Command, mod uint16, n int, fields ...[3]uint64) []byte {
	in := make([]byte, n)
	prm.PutCommand(in, op, mod)
	for _, f := range fields {
		prm.SetBits(in, int(f[0]), int(f[1]), f[2])
	}
	return in
}

// exec executes a command and returns its delivery status and its answer.
func (d *driver) exec(in []byte, outLen int) (status byte, out []byte) {
	d.t.Helper()
	const slot, token = 0, 0x5a
	var e [entrySize]byte
	e[0] = entryType
	be.PutUint32(e[entryInLen:], uint32(len(in)))
	copy(e[entryIn:entryOut], in)
	if len(in) > entryInPlace {
		be.PutUint64(e[entryInBox:], d.boxes(driverBoxes, len(in)-entryInPlace, in[entryInPlace:], token))
	}
	outBoxes := uint64(driverBoxes + 2<<20)
	be.PutUint64(e[entryOutBox:], d.boxes(outBoxes, outLen-entryInPlace, nil, token))
	be.PutUint32(e[entryOutLen:], uint32(outLen))
	e[entryToken], e[entryStatus] = token, entryOwned
	d.put(driverMemory+slot*entrySize, e[:])
	d.write32(regDoorbell, 1<<slot)
	for end := time.Now().Add(time.Minute); e[entryStatus]&entryOwned != 0; runtime.Gosched() {
		if time.Now().After(end) {
			d.t.Fatal("the command was not answered")
		}
		fatal.If(d.t, d.mem.Read(driverMemory+slot*entrySize+entryToken, e[entryToken:]))
	}
	fatal.If(d.t, d.mem.Read(driverMemory+slot*entrySize, e[:]))
	out = append(out, e[entryOut:entryOut+min(entryInPlace, outLen)]...)
	for at := outBoxes; len(out) < outLen; at += 1024 {
		b := make([]byte, min(boxData, outLen-len(out)))
		fatal.If(d.t, d.mem.Read(at, b))
		out = append(out, b...)
	}
	if fw := d.dev.firmware(); fw != nil && !d.deaf {
		fw.eqs.mu.Lock()
		for _, q := range fw.eqs.eqs.objects {
			q.consumer = q.producer & 0xffffff
		}
		fw.eqs.mu.Unlock()
	}
	return e[entryStatus] >> 1, out
}

// readBoot returns the commands of a recorded boot.
func readBoot(t testing.TB) []recorded.Command {
	t.Helper()
	boot, err := recorded.Linux612()
	if err != nil || len(boot) == 0 {
		t.Fatalf("%d commands, %v", len(boot), err)
	}
	return boot
}

// replay executes the commands of a recorded boot. Each must get the recorded answer.
func (d *driver) replay() {
	d.t.Helper()
	for _, c := range readBoot(d.t) {
		status, out := d.exec(c.In, len(c.Out))
		op, mod := prm.OpcodeOf(c.In)
		if status != deliverOK || !bytes.Equal(out, c.Out) {
			d.t.Fatalf("line %d: command %#x, modifier %#x: delivery status %#x\n got %x\nwant %x", c.Line, uint16(op), mod, status, bytes.TrimRight(out, "\x00"), bytes.TrimRight(c.Out, "\x00"))
		}
	}
}

// TestRecordedBoot replays the recorded boot of a kernel, whose driver accepted the answers. It
// runs twice on one device, since a driver that is loaded again must find a device without objects.
func TestRecordedBoot(t *testing.T) {
	d := newDriver(t, Config{})
	for range 2 {
		d.replay()
	}
	if d.interrupts(0) == 0 {
		t.Error("no command was reported by an interrupt")
	}
	if h := d.read32(regHealthSynd); h != 0 {
		t.Errorf("health %#x", h)
	}
}

// TestEventQueueOfItsOwnCreation makes the first event queue. The answer of that command is not
// reported to the new queue, because the driver does not know the queue yet.
func TestEventQueueOfItsOwnCreation(t *testing.T) {
	d := newDriver(t, Config{})
	seen := false
	for _, c := range readBoot(t) {
		before := d.interrupts(0)
		d.exec(c.In, len(c.Out))
		op, _ := prm.OpcodeOf(c.In)
		d.settle()
		if n := d.interrupts(0) - before; op == prm.CmdCreateEQ && !seen {
			if n != 0 {
				t.Fatalf("%d interrupts for CREATE_EQ", n)
			}
			seen = true
		} else if seen {
			if n != 1 {
				t.Fatalf("%d interrupts for the command after CREATE_EQ", n)
			}
			return
		}
	}
	t.Fatal("the boot makes no event queue")
}

// TestEventQueueOverrun lets the driver handle no events: the function becomes unhealthy when the queue of commands is
// full, and writes no event over another one.
func TestEventQueueOverrun(t *testing.T) {
	d := booted(t, Config{})
	d.deaf = true
	q := d.dev.firmware().eqs.eqs.objects[1]
	for range 2 << q.logSize {
		d.command(prm.CmdQueryHCACap, 0, 16, 0x1010)
	}
	d.settle()
	if h := d.read32(regHealthSynd); h != healthEQOverrun<<16 || q.producer-q.consumer != 1<<q.logSize {
		t.Errorf("health %#x, %d events in %d entries", h, q.producer-q.consumer, 1<<q.logSize)
	}
}

// settle waits until the device executes nothing.
func (d *driver) settle() {
	d.dev.mu.Lock()
	defer d.dev.mu.Unlock()
	for d.dev.working {
		d.dev.idle.Wait()
	}
}

// TestQueueOutsideOfMemory puts the command queue into memory that does not exist. The function
// becomes unhealthy, and works again after a reset.
func TestQueueOutsideOfMemory(t *testing.T) {
	d := newDriver(t, Config{})
	d.write32(regQueueHigh, 0x7fffffff)
	d.write32(regDoorbell, 1)
	d.settle()
	if h := d.read32(regHealthSynd); h != healthFirmwareError<<16 {
		t.Errorf("health %#x, want syndrome %#x", h, healthFirmwareError)
	}
	d.dev.Reset()
	d.start()
	if h := d.read32(regHealthSynd); h != 0 {
		t.Errorf("health %#x after a reset", h)
	}
	if status, out := d.exec(build(prm.CmdEnableHCA, 0, 16), 12); status != deliverOK || out[0] != 0 {
		t.Errorf("ENABLE_HCA after a reset: delivery %#x, status %#x", status, out[0])
	}
}

// TestBadEntries sends invalid entries and mailboxes. Each gets its delivery status.
func TestBadEntries(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(e []byte, d *driver)
		want  byte
	}{
		{"another type", func(e []byte, d *driver) { e[0] = 6 }, deliverBadEntry},
		{"a short command", func(e []byte, d *driver) { be.PutUint32(e[entryInLen:], 4) }, deliverInLen},
		{"a huge command", func(e []byte, d *driver) { be.PutUint32(e[entryInLen:], 1<<30) }, deliverInLen},
		{"a huge answer", func(e []byte, d *driver) { be.PutUint32(e[entryOutLen:], 1<<30) }, deliverOutLen},
		{"no mailbox", func(e []byte, d *driver) { be.PutUint32(e[entryInLen:], 64) }, deliverBadInBox},
		{"no mailbox for the answer", func(e []byte, d *driver) { be.PutUint32(e[entryOutLen:], 64) }, deliverBadOutBox},
		{"a mailbox with another token", func(e []byte, d *driver) {
			be.PutUint32(e[entryInLen:], 64)
			be.PutUint64(e[entryInBox:], d.boxes(driverBoxes, 48, nil, 1))
		}, deliverToken},
		{"a list of mailboxes that is a circle", func(e []byte, d *driver) {
			be.PutUint32(e[entryInLen:], 1<<20)
			be.PutUint64(e[entryInBox:], d.boxes(driverBoxes, 48, nil, 0x5a))
			var next [8]byte
			be.PutUint64(next[:], driverBoxes)
			d.put(driverBoxes+boxNext, next[:])
		}, deliverNumber},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDriver(t, Config{})
			var e [entrySize]byte
			e[0] = entryType
			be.PutUint32(e[entryInLen:], 16)
			be.PutUint32(e[entryOutLen:], 16)
			e[entryToken], e[entryStatus] = 0x5a, entryOwned
			test.spoil(e[:], d)
			d.put(driverMemory, e[:])
			d.write32(regDoorbell, 1)
			d.settle()
			fatal.If(t, d.mem.Read(driverMemory, e[:]))
			if e[entryStatus] != test.want<<1 {
				t.Errorf("status %#x, want %#x", e[entryStatus], test.want<<1)
			}
		})
	}
}

// TestModifyCQ sets the event moderation of a CQ, as mlx5e of kernel 6.1 does. Other fields are
// refused.
func TestModifyCQ(t *testing.T) {
	d := newDriver(t, Config{})
	var cq uint32
	for _, c := range readBoot(t) {
		_, out := d.exec(c.In, len(c.Out))
		if op, _ := prm.OpcodeOf(c.In); op == prm.CmdCreateCQ {
			cq = prm.NumberOf(out)
			break
		}
	}
	for fields, want := range map[uint64]prm.CommandStatus{3: prm.CmdOK, 1: prm.CmdOK, 4: prm.CmdBadParam} {
		in := build(prm.CmdModifyCQ, 0, 272, [3]uint64{0x60, 32, fields})
		prm.PutNumber(in, cq)
		if _, out := d.exec(in, 16); prm.CommandStatus(out[0]) != want {
			t.Errorf("fields %#x: status %#x, want %#x", fields, out[0], want)
		}
	}
}

// Users are programs whose commands the driver executes. They do not have the driver's own commands.
func TestUserCommands(t *testing.T) {
	d := booted(t, Config{})
	exec := func(op prm.Command, uid uint16, n int, fields ...[3]uint64) (prm.CommandStatus, []byte) {
		_, out := d.exec(build(op, 0, n, append(fields, [3]uint64{0x10, 16, uint64(uid)})...), 16)
		return prm.CommandStatus(out[0]), out
	}
	_, out := exec(prm.CmdCreateUser, 0, 32)
	uid := uint16(prm.Bits(out, 0x50, 16))
	for _, row := range []struct {
		op   prm.Command
		uid  uint16
		want prm.CommandStatus
	}{
		{prm.CmdAllocPD, uid, prm.CmdOK}, {prm.CmdAllocPD, uid + 1, prm.CmdBadResource}, {prm.CmdAllocDomain, uid, prm.CmdOK}, {prm.CmdAllocDomain, sharedUser, prm.CmdOK},
		{prm.CmdCreateFlowTable, uid, prm.CmdBadSystemState}, {prm.CmdDisableHCA, uid, prm.CmdBadSystemState}, {prm.CmdCreateTIR, uid, prm.CmdBadSystemState},
	} {
		if st, _ := exec(row.op, row.uid, 16); st != row.want {
			t.Errorf("%v of user %#x: status %v, want %v", row.op, row.uid, st, row.want)
		}
	}
	if st, _ := exec(prm.CmdDestroyUser, 0, 16, [3]uint64{0x50, 16, uint64(uid)}); st != prm.CmdOK {
		t.Error(st)
	}
	if st, _ := exec(prm.CmdAllocPD, uid, 16); st != prm.CmdBadResource {
		t.Errorf("a user that has gone: %v", st)
	}
}

// TestFatal fails an adapter in use. Linux's driver resets the function only if the bit RFR is set, waits until the
// interface is disabled, and begins anew by the address of its commands, which the function must take in its initial state.
func TestFatal(t *testing.T) {
	d := booted(t, Config{})
	for range 2 {
		d.dev.Fail()
		if h := d.read32(regHealthSynd); h != healthFirmwareError<<16 {
			t.Errorf("health %#x, want syndrome %#x", h, healthFirmwareError)
		}
		if r := d.read32(regHealthReset); r != healthReset<<24 {
			t.Errorf("the register with RFR has %#x", r)
		}
		if q := d.read32(regQueueLow); q>>nicStateShift&nicStateMask != nicDisabled {
			t.Errorf("the interface is not disabled: %#x", q)
		}
		d.start()
		if h, r, q := d.read32(regHealthSynd), d.read32(regHealthReset), d.read32(regQueueLow); h != 0 || r != 0 || q>>nicStateShift&nicStateMask != 0 {
			t.Errorf("health %#x, RFR %#x, queue %#x after the driver began anew", h, r, q)
		}
		boot := readBoot(t)
		for i, c := range boot[:20] {
			if status, out := d.exec(c.In, len(c.Out)); status != deliverOK || out[0] != c.Out[0] {
				t.Fatalf("command %d: delivery %#x, status %#x", i, status, out[0])
			}
		}
	}
}
