package nvme

import "fmt"

// CMRequest is the private data with which a host requests a connection (RDMA 6.2).
type CMRequest struct {
	Format  uint16
	QID     uint16
	HRQSize uint16 // the host's receive queue
	HSQSize uint16 // the host's send queue; counts from 0
	CNTLID  uint16
}

// ParseCMRequest reads the private data of a connection request.
func ParseCMRequest(b []byte) (r CMRequest, err error) {
	if len(b) < 32 {
		return r, fmt.Errorf("private data of %d bytes: must have at least 32", len(b))
	}
	return CMRequest{le.Uint16(b), le.Uint16(b[2:]), le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:])}, nil
}

// AppendCMAccept appends the private data of an accepted connection. size is the length of the
// controller's receive queue.
func AppendCMAccept(b []byte, size uint16) []byte {
	b = le.AppendUint16(b, 0)
	b = le.AppendUint16(b, size)
	return append(b, make([]byte, 28)...)
}

// Reasons of a refused connection.
const (
	CMInvalidLength  = 0x01
	CMInvalidFormat  = 0x02
	CMInvalidQID     = 0x03
	CMInvalidHSQSize = 0x04
	CMInvalidHRQSize = 0x05
	CMNoResources    = 0x06
)

// AppendCMReject appends the private data of a refused connection.
func AppendCMReject(b []byte, reason uint16) []byte {
	b = le.AppendUint16(b, 0)
	return le.AppendUint16(b, reason)
}
