package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

// distanceRow measures the kernel's copy of 64 KiB from memory that begins on a page to the payload of a packet in a
// buffer of netconn.NewBuffer, next to the same in a buffer that begins on a page itself.
func distanceRow() bench.Row {
	const size, headers, page = 64 << 10, 28, 4096 // of a first packet of an RDMA WRITE
	from := make([]byte, size)
	read := func(name string, to []byte) bench.Case {
		local, remote := []unix.Iovec{{Base: &to[headers], Len: size}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: size}}
		return bench.Case{Name: name, Work: size, Run: func(n int) {
			for range n {
				if _, err := unix.ProcessVMReadv(unix.Getpid(), local, remote, 0); err != nil {
					panic(fmt.Sprintf("process_vm_readv of this process: %v", err))
				}
			}
		}}
	}
	peer := read("28 bytes after a page", make([]byte, size+page))
	return bench.Row{
		Group: "run", Operation: "process_vm_readv to a payload", Size: size, Unit: bench.GBps,
		Ours: read("netconn.NewBuffer", netconn.NewBuffer(size+page)), Peer: &peer, Target: 0.9,
	}
}
