package pci

import (
	"runtime"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// opcodes are all that a command can have in its 12 lowest bits: those of the table and more.
const opcodes = 0x1000

// refuses reports whether the function refuses an empty command of a user because of who sends it or when.
func (d *driver) refuses(op prm.Command, uid uint16) bool {
	_, out := d.exec(build(op, 0, 16, [3]uint64{0x10, 16, uint64(uid)}), 16)
	return prm.CommandStatus(out[0]) == prm.CmdBadSystemState
}

// TestEarlyCommands sends every opcode to a function that is not enabled. It executes those with which Linux enables
// it (mlx5_function_enable and mlx5_function_open in main.c of mlx5_core) or disables it, and no other.
func TestEarlyCommands(t *testing.T) {
	early := []prm.Command{
		prm.CmdQueryHCACap, prm.CmdSetHCACap, prm.CmdEnableHCA, prm.CmdDisableHCA, prm.CmdTeardownHCA, prm.CmdQueryPages, prm.CmdManagePages,
		prm.CmdQueryISSI, prm.CmdSetISSI, prm.CmdAccessReg,
	}
	d := newDriver(t, Config{})
	for op := range prm.Command(opcodes) {
		if refused := d.refuses(op, 0); refused == slices.Contains(early, op) {
			t.Errorf("%v: refused is %t", op, refused)
		}
		if op == prm.CmdEnableHCA {
			d.refuses(prm.CmdDisableHCA, 0)
		}
	}
}

// TestCommandsOfUsers sends every opcode as a user of the driver. Of the commands that the function executes itself a
// user has those that ask about the function, and pages of doorbells; of the adapter's all but XRC domains, which
// belong to the function.
func TestCommandsOfUsers(t *testing.T) {
	own := []prm.Command{
		prm.CmdQueryHCACap, prm.CmdQueryAdapter, prm.CmdQueryISSI, prm.CmdQuerySpecial, prm.CmdQueryVPortState, prm.CmdQueryNICVPort,
		prm.CmdAllocUAR, prm.CmdDeallocUAR,
	}
	d := booted(t, Config{})
	uid := uint16(prm.Bits(d.command(prm.CmdCreateUser, 0, 32, 16), 0x50, 16))
	for op := range prm.Command(opcodes) {
		allowed := slices.Contains(own, op)
		if handlers[op] == nil {
			allowed = op != prm.CmdAllocXRCD && op != prm.CmdDeallocXRCD
		}
		if refused := d.refuses(op, uid); refused == allowed {
			t.Errorf("%v: refused is %t", op, refused)
		}
	}
}

// TestCommandsOfDrivers sends every opcode as the driver. It has every command that the table gives it, and no other.
func TestCommandsOfDrivers(t *testing.T) {
	d := booted(t, Config{})
	for op := range prm.Command(opcodes) {
		if op == prm.CmdTeardownHCA || op == prm.CmdDisableHCA || op == prm.CmdEnableHCA {
			continue // those above
		}
		_, out := d.exec(build(op, 0, max(16, op.Spec().In)), max(16, op.Spec().Out))
		if unknown := prm.CommandStatus(out[0]) == prm.CmdBadOp; unknown == op.Spec().Has(prm.ByDriver) {
			t.Errorf("%v: status %v", op, prm.CommandStatus(out[0]))
		}
	}
}

// TestQuotaOfEachObject counts three objects of every command that costs something: two with one number and of two types,
// where objects have types. The end of one leaves the others.
func TestQuotaOfEachObject(t *testing.T) {
	for op := range prm.Command(opcodes) {
		if op.Spec().Bytes == 0 {
			continue
		}
		q := memoryQuota{objects: make(map[prm.Destruction]int64)}
		var ends []*call
		for i := range 3 {
			c := &call{Call: prm.Call{Command: op, In: make([]byte, 16), Out: make([]byte, 32)}}
			number := uint32(i + 1)
			if op == prm.CmdCreateObject {
				c.Mod, number = prm.ObjectDEK+uint16(i), 1
			}
			prm.PutCommand(c.In, op, c.Mod)
			prm.PutNumber(c.Out, number)
			switch op {
			case prm.CmdCreateObject:
				prm.PutObjectID(c.Out, number)
			case prm.CmdCreatePSV:
				prm.SetBits(c.In, 0x40, 4, 2)
				prm.PutPSVs(c.Out, []uint32{10 * number, 10*number + 1})
			}
			q.note(c)
			for j := range prm.Objects(c.In) {
				d, _ := prm.DestructionOf(c.In, c.Out, j)
				end := &call{Call: prm.Call{Command: d.Command, Mod: d.Type, In: make([]byte, 16)}}
				d.Put(end.In)
				ends = append(ends, end)
			}
		}
		for i, end := range ends {
			if want := op.Spec().Bytes * int64(len(ends)-i); q.bytes != want {
				t.Errorf("%v: %d bytes for %d objects, want %d", op, q.bytes, len(ends)-i, want)
			}
			q.note(end)
		}
		if q.bytes != 0 || len(q.objects) != 0 {
			t.Errorf("%v: %d bytes are left", op, q.bytes)
		}
	}
}

// TestQuotaCoversMemory makes many objects by each command of a recorded boot that costs something, and by those that the boot
// does not have. They take no more memory than the quota counts for them. It has room for as many queue pairs and memory
// keys as are announced.
func TestQuotaCoversMemory(t *testing.T) {
	const count, noise = 128, 4096 // bytes that the heap grows by itself
	d := booted(t, Config{})
	q := &d.dev.firmware().memory
	for op, n := range map[prm.Command]int64{prm.CmdCreateQP: 1 << 17, prm.CmdCreateMKey: 1 << 20} {
		if n*op.Spec().Bytes > mostObjectBytes {
			t.Errorf("%v: %d of them do not fit", op, n)
		}
	}
	var commands [][]byte
	for _, c := range readBoot(t) {
		if op, _ := prm.OpcodeOf(c.In); op == prm.CmdCreateQP {
			prm.SetBits(c.In, 0x18*8+0x08, 8, prm.QPServiceRC) // the boot's has the service of the only GSI
		}
		commands = append(commands, c.In)
	}
	more := func(op prm.Command, mod uint16, n int, fields ...[3]uint64) {
		commands = append(commands, build(op, mod, n, fields...))
	}
	const pd = 1
	more(prm.CmdCreatePSV, 0, 16, [3]uint64{0x40, 4, 4}, [3]uint64{0x48, 24, pd})
	more(prm.CmdCreateUmem, 0, 0x38, [3]uint64{0x80 + 0xc0, 64, 1}, [3]uint64{0x180, 64, 0x10000})
	more(prm.CmdCreateObject, prm.ObjectDEK, 0xd0, [3]uint64{0x80 + 0x5c, 4, prm.KeyPurposeXTS}, [3]uint64{0x80 + 0x68, 24, pd}, [3]uint64{0x80 + 0x200, 32, 7})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	seen := map[prm.Command]bool{}
	for _, in := range commands {
		op, _ := prm.OpcodeOf(in)
		if op.Spec().Bytes == 0 || seen[op] {
			continue
		}
		seen[op] = true
		took, counted := heap(), q.bytes
		for range count {
			if _, out := d.exec(in, 0x20); out[0] != 0 {
				t.Fatalf("%v: %v", op, prm.CommandStatus(out[0]))
			}
		}
		if took, counted = heap()-took, q.bytes-counted; took > counted+noise {
			t.Errorf("%v: %d objects take %d bytes, %d are counted", op, count, took, counted)
		}
	}
	for op := range prm.Command(opcodes) {
		if op.Spec().Bytes != 0 && !seen[op] {
			t.Errorf("%v was not tried", op)
		}
	}
}
