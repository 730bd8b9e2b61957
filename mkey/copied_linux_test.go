package mkey_test

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// process is the memory of a process as a keydoor.Copied and its keydoor.Space. Addresses are
// those of the process.
type process struct{ pid int }

func (p *process) Reach(addr, n uint64, need rdma.Access) error { return nil }

func (p *process) At(addr, n uint64, need rdma.Access) ([]byte, error) { panic("used in place") }

func (p *process) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	return p, addr, nil
}

func (p *process) ReadV(v []keydoor.Vec) error  { return p.transfer(v, unix.ProcessVMReadv) }
func (p *process) WriteV(v []keydoor.Vec) error { return p.transfer(v, unix.ProcessVMWritev) }

func (p *process) transfer(v []keydoor.Vec, call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	local, remote := make([]unix.Iovec, len(v)), make([]unix.RemoteIovec, 0, len(v))
	total := 0
	for i, x := range v {
		local[i].Base = &x.Buf[0]
		local[i].SetLen(len(x.Buf))
		total += len(x.Buf)
		if last := len(remote) - 1; last >= 0 && remote[last].Base+uintptr(remote[last].Len) == uintptr(x.Addr) {
			remote[last].Len += len(x.Buf)
			continue
		}
		remote = append(remote, unix.RemoteIovec{Base: uintptr(x.Addr), Len: len(x.Buf)})
	}
	n, err := call(p.pid, local, remote, 0)
	if err == nil && n != total {
		err = unix.EFAULT
	}
	return err
}

// TestProcessMemory uses a key over the memory of a process (this one) with
// process_vm_readv and process_vm_writev.
func TestProcessMemory(t *testing.T) {
	if _, err := unix.ProcessVMReadv(os.Getpid(), nil, nil, 0); errors.Is(err, unix.ENOSYS) {
		t.Skip("NOT RUN: this test runs under an emulator, which has no process_vm_readv")
	}
	const blocks = 500
	page := must(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	defer unix.Munmap(page)
	base := uint64(uintptr(unsafe.Pointer(&page[0])))
	p := &process{os.Getpid()}
	k := newKey(t, mkey.KeyConfig{
		Access: rdma.LocalWrite,
		Layout: mkey.Interleaved{Repeat: blocks, Entries: []mkey.Entry{
			{Memory: p, Addr: base + 1, Count: 512, Skip: 3}, {Memory: p, Addr: base + 1<<19, Count: 8},
		}},
		Signature: &mkey.Signature{Memory: t10, Wire: t10},
	})
	stream := mkeytest.Protect(t10, pattern(blocks*512))
	receive(t, k, 0, stream)
	for i := range blocks {
		equal(t, "block", page[1+515*i:][:512], stream[520*i:][:512])
		equal(t, "field", page[1<<19+8*i:][:8], stream[520*i+512:][:8])
	}
	equal(t, "sent", send(t, k, 0, blocks*520), stream)
	sound(t, k, "received and sent")

	noErr(t, unix.Mprotect(page[1<<19:], unix.PROT_NONE))
	tx := must(k.NewReader(0, blocks*520))
	defer tx.Close()
	if _, err := tx.ReadAt(make([]byte, blocks*520), 0); err != unix.EFAULT {
		t.Errorf("memory that may not be read: %v", err)
	}
}
