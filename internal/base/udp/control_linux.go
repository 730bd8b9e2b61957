package udp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages are built and read by hand, because the helpers of x/sys/unix
// allocate. The layout is cmsg(3): a header, the data, padding to a word.

const (
	cmsgHeader = unix.SizeofCmsghdr

	// controlWords is room for the four control messages that can come: segment
	// size, type of service, traffic class, drops.
	controlWords = 4 * 24 / 8
)

// cmsgAlign rounds up as CMSG_ALIGN does: to the machine's word.
func cmsgAlign(n int) int {
	const word = int(unsafe.Sizeof(uintptr(0)))
	return (n + word - 1) &^ (word - 1)
}

// putHeader writes a header for n bytes of data at offset off and returns where
// the data goes and where the next header does.
func putHeader(b *[controlWords]uint64, off int, level, typ int32, n int) (data unsafe.Pointer, next int) {
	h := (*unix.Cmsghdr)(unsafe.Add(unsafe.Pointer(b), off))
	h.Level, h.Type = level, typ
	h.SetLen(cmsgHeader + n)
	return unsafe.Add(unsafe.Pointer(h), cmsgHeader), off + cmsgHeader + cmsgAlign(n)
}

// putSegment asks for GSO with datagrams of seg bytes.
func putSegment(b *[controlWords]uint64, off int, seg uint16) int {
	p, next := putHeader(b, off, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	*(*uint16)(p) = seg
	return next
}

// putTOS sets the type of service or the traffic class of one message.
func putTOS(b *[controlWords]uint64, off int, v4 bool, tos byte) int {
	level, typ := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
	if v4 {
		level, typ = unix.IPPROTO_IP, unix.IP_TOS
	}
	p, next := putHeader(b, off, level, typ, 4)
	*(*int32)(p) = int32(tos)
	return next
}

// ancillary is what the control messages of a received train say.
type ancillary struct {
	seg      int    // bytes per datagram; 0: a single datagram
	tos      byte   // type of service or traffic class
	drops    uint32 // datagrams lost so far to a full buffer
	hasDrops bool
}

// parseControl reads the control messages in b. What it does not know, and what
// does not fit in b, is passed over.
func parseControl(b []byte) ancillary {
	var a ancillary
	for len(b) >= cmsgHeader {
		n, level, typ := cmsgFields(b)
		if n < cmsgHeader || n > uint64(len(b)) {
			break
		}
		data := b[cmsgHeader:n]
		switch {
		case level == unix.SOL_UDP && typ == unix.UDP_GRO && len(data) >= 4:
			a.seg = max(0, int(int32(binary.NativeEndian.Uint32(data))))
		case level == unix.IPPROTO_IP && typ == unix.IP_TOS && len(data) >= 1:
			a.tos = data[0] // the kernel sends a single byte here
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS && len(data) >= 4:
			a.tos = byte(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			a.drops, a.hasDrops = binary.NativeEndian.Uint32(data), true
		}
		b = b[min(cmsgAlign(int(n)), len(b)):]
	}
	return a
}

// cmsgFields reads a header without asking for its alignment.
func cmsgFields(b []byte) (n uint64, level, typ int32) {
	const word = int(unsafe.Sizeof(uintptr(0)))
	if word == 8 {
		n = binary.NativeEndian.Uint64(b)
	} else {
		n = uint64(binary.NativeEndian.Uint32(b))
	}
	level = int32(binary.NativeEndian.Uint32(b[word:]))
	typ = int32(binary.NativeEndian.Uint32(b[word+4:]))
	return n, level, typ
}
