package udp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages are built and parsed here, because the helpers of x/sys/unix allocate.
// Their layout is described in cmsg(3): a header, the data, and padding to a word.

const (
	cmsgHeader = unix.SizeofCmsghdr

	// controlWords is the size of a control buffer: room for the five control
	// messages that can arrive (segment size, type of service, traffic class, hop limit, drops).
	controlWords = 5 * 24 / 8
)

// cmsgAlign rounds n up to the machine's word, as CMSG_ALIGN does.
func cmsgAlign(n int) int {
	const word = int(unsafe.Sizeof(uintptr(0)))
	return (n + word - 1) &^ (word - 1)
}

// putHeader writes a header for n bytes of data at offset off. It returns the address of
// the data and the offset of the next header.
func putHeader(b *[controlWords]uint64, off int, level, typ int32, n int) (data unsafe.Pointer, next int) {
	h := (*unix.Cmsghdr)(unsafe.Add(unsafe.Pointer(b), off))
	h.Level, h.Type = level, typ
	h.SetLen(cmsgHeader + n)
	return unsafe.Add(unsafe.Pointer(h), cmsgHeader), off + cmsgHeader + cmsgAlign(n)
}

// putSegment requests GSO with datagrams of seg bytes.
func putSegment(b *[controlWords]uint64, off int, seg uint16) int {
	p, next := putHeader(b, off, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	*(*uint16)(p) = seg
	return next
}

// putTOS sets the type of service or traffic class of a message.
func putTOS(b *[controlWords]uint64, off int, v4 bool, tos byte) int {
	return putField(b, off, v4, unix.IP_TOS, unix.IPV6_TCLASS, tos)
}

// putHops sets the time to live or hop limit of a message.
func putHops(b *[controlWords]uint64, off int, v4 bool, hops uint8) int {
	return putField(b, off, v4, unix.IP_TTL, unix.IPV6_HOPLIMIT, hops)
}

// putField sets a field of a message's IP header, whose types are in4 and in6.
func putField(b *[controlWords]uint64, off int, v4 bool, in4, in6 int32, value uint8) int {
	level, typ := int32(unix.IPPROTO_IPV6), in6
	if v4 {
		level, typ = unix.IPPROTO_IP, in4
	}
	p, next := putHeader(b, off, level, typ, 4)
	*(*int32)(p) = int32(value)
	return next
}

// ancillary holds the contents of a received train's control messages.
type ancillary struct {
	seg      int    // bytes per datagram; 0: a single datagram
	tos      byte   // type of service or traffic class
	hops     uint8  // time to live or hop limit; 0: not known
	drops    uint32 // datagrams dropped so far because the buffer was full
	hasDrops bool
}

// parseControl parses the control messages in b. It skips unknown and truncated messages.
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
			a.tos = data[0] // the kernel sends one byte here
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS && len(data) >= 4:
			a.tos = byte(binary.NativeEndian.Uint32(data))
		case level == unix.IPPROTO_IP && typ == unix.IP_TTL && len(data) >= 4,
			level == unix.IPPROTO_IPV6 && typ == unix.IPV6_HOPLIMIT && len(data) >= 4:
			a.hops = uint8(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			a.drops, a.hasDrops = binary.NativeEndian.Uint32(data), true
		}
		b = b[min(cmsgAlign(int(n)), len(b)):]
	}
	return a
}

// cmsgFields reads a header at any alignment.
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
