package adapter_test

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// store64 stores a big-endian number in one piece, as a doorbell is rung.
func store64(b []byte, v uint64) {
	var be [8]byte
	binary.BigEndian.PutUint64(be[:], v)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), *(*uint64)(unsafe.Pointer(&be)))
}
