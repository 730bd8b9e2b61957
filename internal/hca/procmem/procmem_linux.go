package procmem

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/keydoor"
)

// A Vec is a piece of a process's memory, and the bytes that are read from it or
// written to it.
type Vec = keydoor.Vec

// batch is the number of pieces that one system call moves. The kernel takes up
// to 1024; the two vectors of this many stay on the stack.
const batch = 64

// ReadThread fills dst from addr in the memory of a thread that the caller keeps from ending:
// the number of a thread says nothing about the one that had it before.
func ReadThread(thread int, addr uint64, dst []byte) error {
	return transfer(unix.SYS_PROCESS_VM_READV, thread, []Vec{{Addr: addr, Buf: dst}})
}

// WriteThread copies src to addr in the memory of a thread that the caller keeps from ending.
func WriteThread(thread int, addr uint64, src []byte) error {
	return transfer(unix.SYS_PROCESS_VM_WRITEV, thread, []Vec{{Addr: addr, Buf: src}})
}

func transfer(trap uintptr, pid int, vecs []Vec) error {
	var local [batch]unix.Iovec
	var remote [batch]unix.RemoteIovec
	for len(vecs) > 0 {
		n, ranges, total := 0, 0, 0
		for len(vecs) > 0 && n < batch {
			v := vecs[0]
			vecs = vecs[1:]
			if len(v.Buf) == 0 {
				continue
			}
			local[n].Base = &v.Buf[0]
			local[n].SetLen(len(v.Buf))
			total += len(v.Buf)
			n++
			// Adjacent pieces are one range of the process: each range costs about as
			// much as copying a kilobyte.
			if ranges > 0 && remote[ranges-1].Base+uintptr(remote[ranges-1].Len) == uintptr(v.Addr) {
				remote[ranges-1].Len += len(v.Buf)
				continue
			}
			remote[ranges] = unix.RemoteIovec{Base: uintptr(v.Addr), Len: len(v.Buf)}
			ranges++
		}
		if n == 0 {
			return nil
		}
		moved, _, errno := syscall.Syscall6(trap, uintptr(pid), uintptr(unsafe.Pointer(&local[0])), uintptr(n),
			uintptr(unsafe.Pointer(&remote[0])), uintptr(ranges), 0)
		if errno != 0 {
			return errno
		}
		if int(moved) != total {
			return syscall.EFAULT
		}
	}
	return nil
}

// A Change is a change of a range of a process's memory that the process is about to make.
type Change struct {
	Process      int
	Call         string // the system call
	Addr, Length uint64
	Where        string // the code that makes the call

	// Gone: the pages that are mapped there now will not be there any more. Otherwise Readable and
	// Writable are the rights that they will have.
	Gone, Readable, Writable bool
}
