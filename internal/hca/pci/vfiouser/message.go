package vfiouser

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
)

var le = binary.LittleEndian

// The commands.
const (
	cmdVersion       = 1
	cmdDMAMap        = 2
	cmdDMAUnmap      = 3
	cmdDeviceInfo    = 4
	cmdRegionInfo    = 5
	cmdIRQInfo       = 7
	cmdSetIRQs       = 8
	cmdRegionRead    = 9
	cmdRegionWrite   = 10
	cmdDeviceReset   = 13
	headerSize       = 16
	maxTransfer      = 1 << 20 // bytes of one REGION_READ or REGION_WRITE
	maxMessage       = headerSize + 16 + maxTransfer
	flagTypeMask     = 0xf
	flagReply        = 1
	flagNoReply      = 1 << 4
	flagError        = 1 << 5
	regionBAR0       = 0
	regionConfig     = 7
	regions          = 9
	interrupts       = 5
	irqMSIX          = 2
	deviceFlags      = 1<<0 | 1<<1 // it can be reset; it is a PCI device
	regionFlags      = 1<<0 | 1<<1 // it can be read and written
	irqEventfd       = 1 << 0
	mapRead          = 1 << 0
	mapWrite         = 1 << 1
	unmapAll         = 1 << 1
	irqDataNone      = 1 << 0
	irqDataEventfd   = 1 << 2
	irqActionTrigger = 1 << 5
)

// header is the head of a message.
type header struct {
	id      uint16
	command uint16
	size    uint32 // of the message, with the header
	flags   uint32
}

// parseHeader decodes the head of a command. An error means that the stream cannot be read
// on.
func parseHeader(b *[headerSize]byte) (h header, err error) {
	h = header{id: le.Uint16(b[0:]), command: le.Uint16(b[2:]), size: le.Uint32(b[4:]), flags: le.Uint32(b[8:])}
	switch {
	case h.size < headerSize || h.size > maxMessage:
		return h, failure.New("vfio-user", syscall.EPROTO, "message %d of %d bytes: must be %d to %d", h.command, h.size, headerSize, maxMessage)
	case h.flags&flagTypeMask != 0:
		return h, failure.New("vfio-user", syscall.EPROTO, "message %d with flags %#x: must be a command", h.command, h.flags)
	}
	return h, nil
}

// reply encodes the answer of a command before its payload.
func (h *header) reply(b []byte, payload int, errno syscall.Errno) []byte {
	flags := uint32(flagReply)
	if errno != 0 {
		flags |= flagError
	}
	b = le.AppendUint16(b, h.id)
	b = le.AppendUint16(b, h.command)
	b = le.AppendUint32(b, uint32(headerSize+payload))
	b = le.AppendUint32(b, flags)
	return le.AppendUint32(b, uint32(errno))
}

// short refuses a payload with fewer bytes than the command has.
func short(b []byte, n int) error {
	if len(b) < n {
		return failure.New("vfio-user", syscall.EINVAL, "a payload of %d bytes: must have at least %d", len(b), n)
	}
	return nil
}

// versionAnswer is the payload of the answer of VERSION: 0.0 with the server's limits.
// A client refuses max_msg_fds above 16.
var versionAnswer = fmt.Appendf([]byte{0, 0, 0, 0}, `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"max_dma_maps":%d}}`+"\x00", guestmem.MaxRanges)
