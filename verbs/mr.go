package verbs

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/operr"
)

// MR is a memory region: a slice that requests, and with the rights for it the
// peer's, may reach through its key.
type MR struct {
	pd     *PD
	buf    []byte
	addr   uint64
	access Access
	number uint32
	closed atomic.Bool
}

// Register makes a region of buf. The slice must not be a part of the stack or of
// memory that is unmapped while the region exists. Remote writing and atomics
// need LocalWrite too (ibv_reg_mr(3)).
func (pd *PD) Register(buf []byte, access Access) (*MR, error) {
	const op = "register memory"
	if bad := access &^ (LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | ZeroBased); bad != 0 {
		return nil, operr.New(op, syscall.EINVAL, "access flags %#x: %#x are not known", uint32(access), uint32(bad))
	}
	if access&(RemoteWrite|RemoteAtomic) != 0 && access&LocalWrite == 0 {
		return nil, operr.New(op, syscall.EINVAL, "access flags %#x: remote writing and atomics need LocalWrite", uint32(access))
	}
	mr := &MR{pd: pd, buf: buf, access: access}
	if access&ZeroBased == 0 && len(buf) > 0 {
		mr.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	}
	if err := pd.enter("MR"); err != nil {
		return nil, err
	}
	err := pd.dev.keys.add(keyEntry{mr: mr}, func(number uint32) error {
		mr.number = number
		return nil
	})
	if err != nil {
		pd.leave("MR")
		return nil, err
	}
	return mr, nil
}

// LKey returns the key for requests of this side.
func (mr *MR) LKey() uint32 { return mr.number }

// RKey returns the key for requests of the peer.
func (mr *MR) RKey() uint32 { return mr.number }

// Addr returns the address of the region's first byte, 0 with ZeroBased.
func (mr *MR) Addr() uint64 { return mr.addr }

// Len returns the region's length in bytes.
func (mr *MR) Len() int { return len(mr.buf) }

// Bytes returns the slice that was registered.
func (mr *MR) Bytes() []byte { return mr.buf }

// SGE returns the entry for n bytes from an offset into the region.
func (mr *MR) SGE(offset, n int) SGE {
	return SGE{Addr: mr.addr + uint64(offset), Length: uint32(n), LKey: mr.number}
}

// Close takes the region away. When it has returned, nothing reaches the slice
// through it any more; a request that still does fails.
func (mr *MR) Close() error {
	if mr.closed.Swap(true) {
		return nil
	}
	mr.pd.dev.keys.remove(mr.number)
	mr.pd.dev.quiesce()
	mr.pd.leave("MR")
	return nil
}

// Reach implements mkey.Memory.
func (mr *MR) Reach(addr, n uint64, need Access) error {
	switch off := addr - mr.addr; {
	case mr.closed.Load():
		return operr.New("memory region", syscall.EFAULT, "region %#x was closed", mr.number)
	case need&^mr.access != 0:
		return operr.New("memory region", syscall.EACCES, "region %#x has access flags %#x, %#x are needed", mr.number, uint32(mr.access), uint32(need))
	case addr < mr.addr || off > uint64(len(mr.buf)) || n > uint64(len(mr.buf))-off:
		return operr.New("memory region", syscall.EFAULT, "range %#x+%d lies outside of region %#x", addr, n, mr.number)
	}
	return nil
}

// At implements mkey.Memory.
func (mr *MR) At(addr, n uint64, need Access) ([]byte, error) {
	if err := mr.Reach(addr, n, need); err != nil {
		return nil, err
	}
	off := addr - mr.addr
	return mr.buf[off : off+n], nil
}
