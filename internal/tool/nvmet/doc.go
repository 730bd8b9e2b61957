// Package nvmet is an NVMe over fabrics target without its transport: subsystem, controllers, queues
// and the commands that they execute. The data of commands comes and goes by a [Transfer], which also
// applies the signature of protection information, as an adapter does by a memory key. Package
// nvmet/nvme has the formats, package nvmet/overrdma the transport.
//
// A host can fail its own connection only. The engine keeps for each controller a log of 64 errors,
// 4 asynchronous event requests and its queues, of which there are at most 65, and nothing for a
// command that has ended. A host has at most 16 controllers: an address, or a name of Options.Hosts at an address, so
// that a stranger beside a host which may connect does not take its share.
//
// Absent: reservations, namespace management, authentication, fused operations, asymmetric access, and
// events: an Asynchronous Event Request waits until its controller ends.
package nvmet

import (
	"io"
	"net/netip"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
)

// Limits of a target and of a controller.
const (
	MaxIOQueues     = 64
	MaxQueueSize    = 128 // commands of an I/O queue
	MaxTransfer     = 1 << 20
	hostControllers = 16       // controllers of a host
	maxTransfer     = 8        // MaxTransfer as MDTS
	maxDeallocate   = 64 << 30 // bytes that a Dataset Management deallocates; the rest stays
	maxEvents       = 4
	errorEntries    = 64
	keepAliveUnit   = 10 // in 100 ms

	// discoveryKeepAlive is the keep alive time, in milliseconds, of a discovery controller whose host has none. It is
	// that of Linux's target.
	discoveryKeepAlive = 120_000
)

// MaxBuffer is the largest number of bytes that a command needs in buffers: Compare, in blocks of 512
// bytes, has those of the host and those of the medium.
const MaxBuffer = 2 * (MaxTransfer / 512 * (512 + fieldSize))

// Transfer moves the data of one command. A signature has the host's side as its wire domain and the
// target's as its memory domain. Without a signature, both are the same.
type Transfer interface {
	// Len returns the number of bytes that the command's descriptor names: 0 if it cannot be used.
	Len() int

	// Status returns the status of a command that needs more bytes than Len: what is wrong with the
	// descriptor.
	Status() nvme.Status

	// Buffer returns n bytes of memory, at most MaxBuffer, which are valid until the command has ended.
	// Their content is undefined. A command calls it once, so that one that waits for memory has none.
	Buffer(n int) ([]byte, error)

	// Pull moves the first n bytes of the host's data to buf, which is in the memory of Buffer. It
	// returns the first block that the signature does not accept.
	Pull(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error)

	// Push moves buf to the first n bytes of the host's data.
	Push(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error)
}

// Reply sends the completion of a command to the host.
type Reply func(nvme.Completion)

// Store is the medium of a namespace. It is safe for concurrent use.
type Store interface {
	io.ReaderAt
	io.WriterAt
	Flush() error

	// Trim says that whole blocks are not needed any more. They keep their content, or become what zeros on the medium
	// mean; with protection information, their fields are right.
	Trim(off, n int64) error
}

// Peer describes the connection of a queue.
type Peer struct {
	Local netip.AddrPort // address that the host has connected to
	Host  netip.Addr     // address of the host
	End   func(error)    // ends the connection, with the fault if there is one; it must not block
	Ended func() bool    // reports whether the connection has ended
	Probe func()         // ends the connection, a little later, if the host is gone; nil: it cannot be found out
}
