//go:build linux

package uverbs

import (
	"encoding/binary"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

var le = binary.LittleEndian

// The sizes of struct ib_uverbs_ioctl_hdr and struct ib_uverbs_attr.
const (
	headerSize = 24
	attrSize   = 16
	// mostAttrs is more than any method takes.
	mostAttrs = 64

	attrValidOutput = 2 // UVERBS_ATTR_F_VALID_OUTPUT

	driverMLX5 = 1 // RDMA_DRIVER_MLX5
)

// method is an object type with one of its methods.
type method struct{ object, method uint16 }

// attr is struct ib_uverbs_attr.
type attr struct {
	id, len, flags uint16
	data           uint64 // inline, or the address of the data
}

// request is one ioctl.
type request struct {
	method
	attrs []attr
}

// parseHeader returns the method and the number of attributes of an ioctl.
func parseHeader(b []byte) (m method, attrs int, err error) {
	const op = "uverbs ioctl"
	if len(b) < headerSize {
		return m, 0, failure.New(op, syscall.EFAULT, "a header of %d bytes, %d are needed", len(b), headerSize)
	}
	m = method{le.Uint16(b[2:]), le.Uint16(b[4:])}
	attrs = int(le.Uint16(b[6:]))
	switch {
	case attrs > mostAttrs:
		return m, 0, failure.New(op, syscall.EINVAL, "%d attributes, at most %d are taken", attrs, mostAttrs)
	case int(le.Uint16(b)) != headerSize+attrs*attrSize:
		return m, 0, failure.New(op, syscall.EINVAL, "length %d with %d attributes: it must be %d", le.Uint16(b), attrs, headerSize+attrs*attrSize)
	case le.Uint64(b[8:]) != 0 || le.Uint32(b[20:]) != 0:
		return m, 0, failure.New(op, syscall.EPROTONOSUPPORT, "reserved fields of the header are not 0")
	case le.Uint32(b[16:]) != driverMLX5:
		return m, 0, failure.New(op, syscall.EINVAL, "driver %d: the device is driver %d, mlx5", le.Uint32(b[16:]), driverMLX5)
	}
	return m, attrs, nil
}

// parseAttrs returns the attributes of an ioctl. The length of b is a multiple of attrSize.
func parseAttrs(b []byte) ([]attr, error) {
	attrs := make([]attr, len(b)/attrSize)
	for i := range attrs {
		p := b[i*attrSize:]
		attrs[i] = attr{le.Uint16(p), le.Uint16(p[2:]), le.Uint16(p[4:]), le.Uint64(p[8:])}
		for _, other := range attrs[:i] {
			if other.id == attrs[i].id {
				return nil, failure.New("uverbs ioctl", syscall.EINVAL, "attribute %#x is there twice", attrs[i].id)
			}
		}
	}
	return attrs, nil
}

// putAttrs writes flags and data of attributes into the array that they were parsed from.
func putAttrs(b []byte, attrs []attr) {
	for i, a := range attrs {
		p := b[i*attrSize:]
		le.PutUint16(p[4:], a.flags)
		le.PutUint64(p[8:], a.data)
	}
}

// fields accesses a structure of the ABI by offsets. Older libraries pass shorter
// structures: fields after the end read as 0 and are not written.
type fields []byte

func (f fields) u8(at int) uint8 {
	if at < len(f) {
		return f[at]
	}
	return 0
}

func (f fields) u16(at int) uint16 { return uint16(f.u8(at)) | uint16(f.u8(at+1))<<8 }
func (f fields) u32(at int) uint32 { return uint32(f.u16(at)) | uint32(f.u16(at+2))<<16 }
func (f fields) u64(at int) uint64 { return uint64(f.u32(at)) | uint64(f.u32(at+4))<<32 }

func (f fields) put8(at int, v uint8)   { f[at] = v }
func (f fields) put16(at int, v uint16) { le.PutUint16(f[at:], v) }
func (f fields) put32(at int, v uint32) { le.PutUint32(f[at:], v) }
func (f fields) put64(at int, v uint64) { le.PutUint64(f[at:], v) }
