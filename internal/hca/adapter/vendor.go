package adapter

import (
	"errors"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/rdma"
)

// The vendor's error codes of completions, which the field vendor_err of struct ibv_wc has. No
// document lists them. These are the codes of ConnectX-5 and later in logs that users have
// published.
const (
	vendorNoRight    = 0x33 // local protection: the key lacks the right
	vendorWrongKey   = 0x52 // local protection: the key cannot be used
	vendorOutOfRange = 0x53 // local protection: the range is not the key's
	flushedSend      = 0xf5
	flushedRecv      = 0xf9
)

// vendors are the vendor errors of the statuses that have one each.
var vendors = map[rdma.Status]uint8{
	rdma.StatusLocQPOpErr:     0x68,
	rdma.StatusMWBindErr:      0x78,
	rdma.StatusRetryExcErr:    0x81,
	rdma.StatusRNRRetryExcErr: 0x87,
	rdma.StatusRemAccessErr:   0x88,
	rdma.StatusRemOpErr:       0x89,
	rdma.StatusRemInvReqErr:   0x8a,
}

// vendorOf returns the vendor's error code of a completion with an error. flushed is the code of a
// flushed request of its queue. An error whose code nobody has published has 0.
func vendorOf(c *engine.Completion, flushed uint8) uint8 {
	switch c.Status {
	case rdma.StatusLocProtErr:
		return vendorOfMemory(c.Err)
	case rdma.StatusWRFlushErr:
		return flushed
	}
	return vendors[c.Status] // 0: it has none
}

// vendorOfMemory returns the code of a local protection error.
func vendorOfMemory(err error) uint8 {
	if errors.As(err, new(engine.WrongKeyError)) {
		return vendorWrongKey
	}
	switch failure.Errno(err, syscall.EFAULT) {
	case syscall.EACCES:
		return vendorNoRight
	case syscall.EINVAL: // the key is free
		return vendorWrongKey
	}
	return vendorOutOfRange
}
