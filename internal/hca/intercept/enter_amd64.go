//go:build linux

package intercept

import "golang.org/x/sys/unix"

// registers are the registers of a thread that has stopped after a system call.
type registers struct{ unix.PtraceRegs }

func (r *registers) get(thread int) error { return unix.PtraceGetRegs(thread, &r.PtraceRegs) }
func (r *registers) set(thread int) error { return unix.PtraceSetRegs(thread, &r.PtraceRegs) }

// setCall points the registers to the instruction of the system call, which has 2 bytes, with another
// call. Orig_rax says that there is no call to restart.
func (r *registers) setCall(number int, args [3]uint64) {
	r.Rip -= 2
	r.Rax, r.Orig_rax = uint64(number), ^uint64(0)
	r.Rdi, r.Rsi, r.Rdx = args[0], args[1], args[2]
}

func (r *registers) result() int64     { return int64(r.Rax) }
func (r *registers) setResult(v int64) { r.Rax, r.Orig_rax = uint64(v), ^uint64(0) }
