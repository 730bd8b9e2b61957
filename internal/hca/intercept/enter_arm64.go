//go:build linux

package intercept

import "golang.org/x/sys/unix"

const generalRegisters = 1 // NT_PRSTATUS

// registers are the registers of a thread that has stopped after a system call.
type registers struct{ unix.PtraceRegsArm64 }

func (r *registers) get(thread int) error {
	return unix.PtraceGetRegSetArm64(thread, generalRegisters, &r.PtraceRegsArm64)
}

func (r *registers) set(thread int) error {
	return unix.PtraceSetRegSetArm64(thread, generalRegisters, &r.PtraceRegsArm64)
}

// setCall points the registers to the instruction of the system call, which has 4 bytes, with another
// call.
func (r *registers) setCall(number int, args [3]uint64) {
	r.Pc -= 4
	r.Regs[8] = uint64(number)
	copy(r.Regs[:3], args[:])
}

func (r *registers) result() int64     { return int64(r.Regs[0]) }
func (r *registers) setResult(v int64) { r.Regs[0] = uint64(v) }
