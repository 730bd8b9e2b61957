//go:build linux

package uverbs

import (
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// devxCreate makes an object by a command, whose answer has 16 bytes, and returns its handle.
func (p *program) devxCreate(in []byte) uint64 {
	p.t.Helper()
	return p.must(objDEVXObj, devxObjCreate, num(devxObjHandle, 0), p.in(devxObjIn, in), p.out(devxObjOut, 16))[0].data
}

// keyCommand is the CREATE_MKEY of DPDK's crypto_mlx5.
func keyCommand(pd uint32) []byte {
	in := make([]byte, 0x110)
	prm.PutCommand(in, prm.CmdCreateMKey, 0)
	set := func(off, n int, v uint64) { prm.SetBits(in, 0x80+off, n, v) }
	for _, on := range []int{0x10, 0x12, 0x13, 0x14, 0x15, 0x61} {
		set(on, 1, 1)
	}
	set(0x16, 2, prm.AccessModeKLM)
	set(0x68, 24, uint64(pd))
	set(0x100, 32, 4)
	set(0x1a0, 32, 4)
	set(0x1e3, 2, 1)
	return in
}

// pdn returns the number of a new PD.
func (p *program) pdn() uint32 {
	pd := p.pd()
	attrs := p.out(queryPDNumber, 4)
	p.must(objPD, pdQuery, num(queryPDHandle, uint64(pd)), attrs)
	return p.at(attrs.data, 4).u32(0)
}

// TestKeyFootprint makes as many keys as the table of objects lets a test make quickly. DPDK
// makes half a million.
func TestKeyFootprint(t *testing.T) {
	const count, most = 1 << 16, 400 // keys, and bytes of memory for each
	p := newProgram(t, newDevice(t))
	in := keyCommand(p.pdn())
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	handles := make([]uint32, count)
	before, start := heap(), p.next
	for i := range handles {
		p.next = start
		handles[i] = uint32(p.devxCreate(in))
	}
	if each := (heap() - before) / count; each > most {
		t.Errorf("a key takes %d bytes before it is configured, at most %d are expected", each, most)
	} else {
		t.Logf("%d bytes for each key", each)
	}
	for _, h := range handles {
		p.next = start
		p.must(objDEVXObj, devxObjDestroy, num(devxObjHandle, uint64(h)))
	}
}

// TestDEVXMethods executes commands by the wrong methods and on the wrong objects.
func TestDEVXMethods(t *testing.T) {
	p := newProgram(t, newDevice(t))
	key := p.devxCreate(keyCommand(p.pdn()))
	cmd := func(c prm.Command) []byte {
		in := make([]byte, 16)
		prm.PutCommand(in, c, 0)
		return in
	}
	psvs := cmd(prm.CmdCreatePSV)
	prm.SetBits(psvs, 0x40, 4, 2)
	prm.PutNumber(psvs, p.pdn())
	for _, v := range []struct {
		name   string
		object uint16
		method uint16
		attrs  []attr
		errno  syscall.Errno
	}{
		{"a creation without an object", objDEVX, devxOther, []attr{p.in(devxOtherIn, keyCommand(1)), p.out(devxOtherOut, 16)}, unix.EINVAL},
		{"a query as a creation", objDEVXObj, devxObjCreate, []attr{num(devxObjHandle, 0), p.in(devxObjIn, cmd(prm.CmdQueryQP)), p.out(devxObjOut, 512)}, unix.EINVAL},
		{"a change as a query", objDEVXObj, devxObjQuery, []attr{num(devxObjHandle, key), p.in(devxObjIn, cmd(prm.CmdToErrQP)), p.out(devxObjOut, 16)}, unix.EINVAL},
		{"another object's number", objDEVXObj, devxObjQuery, []attr{num(devxObjHandle, key), p.in(devxObjIn, cmd(prm.CmdQueryQP)), p.out(devxObjOut, 512)}, unix.EINVAL},
		{"an object that the adapter lacks", objDEVXObj, devxObjCreate, []attr{num(devxObjHandle, 0), p.in(devxObjIn, cmd(prm.CmdCreateSQ)), p.out(devxObjOut, 16)}, adapterFailed},
		{"two PSVs for one handle", objDEVXObj, devxObjCreate, []attr{num(devxObjHandle, 0), p.in(devxObjIn, psvs), p.out(devxObjOut, 0x20)}, unix.EINVAL},
		{"no command", objDEVX, devxOther, []attr{p.out(devxOtherOut, 16)}, unix.EINVAL},
		{"a umem of nothing", objUmem, umemReg, []attr{num(regUmemHandle, 0), p.in(regUmemAddr, make([]byte, 8)), p.in(regUmemLength, make([]byte, 8)), p.in(regUmemAccess, []byte{1, 0, 0, 0}), p.out(regUmemNumber, 4)}, unix.EINVAL},
		{"rights of a umem", objUmem, umemReg, []attr{num(regUmemHandle, 0), p.in(regUmemAccess, []byte{0x80, 0, 0, 0}), p.out(regUmemNumber, 4)}, unix.EINVAL},
	} {
		if _, errno := p.ioctl(v.object, v.method, v.attrs...); errno != v.errno {
			t.Errorf("%s: %v, want %v", v.name, errno, v.errno)
		}
	}
}

// TestDEVXCommands looks at which commands each method of DEVX takes, which are some of those of devx.c in Linux, and at
// which of them are quick.
func TestDEVXCommands(t *testing.T) {
	quick := []prm.Command{prm.CmdCreateMKey, prm.CmdDestroyMKey, prm.CmdCreatePSV, prm.CmdDestroyPSV, prm.CmdCreateObject, prm.CmdDestroyObject}
	listed := map[prm.Effect][]prm.Command{
		prm.General: {
			prm.CmdQueryHCACap, prm.CmdQueryAdapter, prm.CmdQueryISSI, prm.CmdQuerySpecial, prm.CmdQueryVPortState, prm.CmdQueryESWContext, prm.CmdQueryNICVPort,
			prm.CmdQueryRoCEAddress, prm.CmdQueryHCAVPort, prm.CmdQueryVNICEnv, prm.CmdQueryVPortCounter, prm.CmdQueryQCounter, prm.CmdAccessReg, prm.CmdNop,
			prm.CmdQueryCongStatus, prm.CmdQueryCongParams, prm.CmdQueryCongStats, prm.CmdQueryLAG,
		},
		prm.Makes: {
			prm.CmdCreateMKey, prm.CmdCreateCQ, prm.CmdCreateQP, prm.CmdCreatePSV, prm.CmdCreateSRQ, prm.CmdCreateXRCSRQ, prm.CmdCreateDCT, prm.CmdCreateXRQ,
			prm.CmdAllocQCounter, prm.CmdCreateScheduling, prm.CmdAllocPD, prm.CmdAttachMCG, prm.CmdAllocXRCD, prm.CmdAllocDomain, prm.CmdAddVXLANPort,
			prm.CmdSetL2Entry, prm.CmdCreateTIR, prm.CmdCreateSQ, prm.CmdCreateRQ, prm.CmdCreateRMP, prm.CmdCreateTIS, prm.CmdCreateRQT, prm.CmdCreateFlowTable,
			prm.CmdCreateFlowGroup, prm.CmdSetFlowEntry, prm.CmdAllocFlowCounter, prm.CmdAllocReformat, prm.CmdAllocModifyHeader, prm.CmdCreateObject,
		},
		prm.Changes: {
			prm.CmdModifyCQ, prm.CmdRst2InitQP, prm.CmdInit2RTRQP, prm.CmdRTR2RTSQP, prm.CmdRTS2RTSQP, prm.CmdSQErr2RTSQP, prm.CmdToErrQP, prm.CmdToRstQP,
			prm.CmdInit2InitQP, prm.CmdModifyRMP, prm.CmdModifyObject, prm.CmdDrainDCT,
		},
		prm.Queries: {prm.CmdQueryMKey, prm.CmdQueryCQ, prm.CmdQueryQP, prm.CmdQueryRMP, prm.CmdQueryObject, prm.CmdQueryDCT},
	}
	for c := range prm.Command(0x1000) {
		for effect, commands := range listed {
			if got := forDEVX(effect)(c); got != slices.Contains(commands, c) {
				t.Errorf("%v, effect %d: listed is %t", c, effect, got)
			}
		}
		if got := c.Spec().Has(prm.Quick); got != slices.Contains(quick, c) {
			t.Errorf("%v: quick is %t", c, got)
		}
	}
}

// adapterFailed is the errno of a command that ran and failed.
const adapterFailed = syscall.Errno(121)
