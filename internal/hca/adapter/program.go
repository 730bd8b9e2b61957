package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// programMemory is the program's memory as the memory of regions, by its addresses: a
// keydoor.Copied. Its space is made once: each conversion to the interface allocates.
type programMemory struct{ space keydoor.Space }

func programMemoryOf(mem Memory) programMemory { return programMemory{programSpace{mem}} }

// Reach implements mkey.Memory. The region has checked the range.
func (p programMemory) Reach(addr, n uint64, need rdma.Access) error { return nil }

// At implements mkey.Memory.
func (p programMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return nil, failure.New("memory", syscall.EOPNOTSUPP, "the program's memory can only be copied")
}

// Space implements keydoor.Copied.
func (p programMemory) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	return p.space, addr, nil
}

// programSpace copies from and to the program's memory, and says what was not there: the program may unmap or protect
// memory that is registered, which on a machine with an adapter stays pinned.
type programSpace struct{ mem Memory }

func (s programSpace) ReadV(v []keydoor.Vec) error  { return s.explain(s.mem.ReadV(v), v, "readable") }
func (s programSpace) WriteV(v []keydoor.Vec) error { return s.explain(s.mem.WriteV(v), v, "writable") }

// explain returns err with the range of v that failed, if err is a bare EFAULT.
func (s programSpace) explain(err error, v []keydoor.Vec, right string) error {
	if err != syscall.EFAULT { // an error with a reason is not compared
		return err
	}
	for _, x := range v {
		var b [1]byte
		n := uint64(len(x.Buf))
		if n == 0 || s.mem.Read(x.Addr, b[:]) == nil && s.mem.Read(x.Addr+n-1, b[:]) == nil {
			continue
		}
		return failure.New("reach the program's memory", syscall.EFAULT, "%d bytes at %#x are registered, but nothing %s is mapped there any more", n, x.Addr, right)
	}
	return failure.New("reach the program's memory", syscall.EFAULT, "%d bytes at %#x are registered, but the memory is no longer %s", len(v[0].Buf), v[0].Addr, right)
}
