package session

import (
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// Config describes a run.
type Config struct {
	Args                  []string // the program and its arguments
	Stdin, Stdout, Stderr *os.File // of the program
	// Alone is set if this process serves the run only: it becomes the subreaper and ends all that
	// the program has left running.
	Alone bool
	// Warn is called with the reason why the program does not get something; it must not block.
	Warn func(error)

	// Advice returns a text that says how to give a device to an address of the host. It is called when a
	// program binds an address that has none. nil: the user gets no such text.
	Advice func(netip.Addr) string
	// Library is the path of libsoftmkey-run.so, by which programs give their processors to the devices while
	// they wait, if packets pass in memory. Empty: they do not.
	Library string
	// StrictMemory watches the system calls by which programs unmap, move, discard or protect memory. Such a
	// call on registered memory is reported, and later transfers there fail. Each of these calls becomes slower
	// by 10 µs and more.
	StrictMemory bool

	// Devices are the devices of the run, at least one. If none of them has an address, the run gets
	// one more device on each address of the host that a program binds with rdma_cm, or from which it
	// reaches a peer.
	Devices []Device
	adapter.Options

	Officer string // the path of a socket for requests of package control; empty: none
	// Control is the path of one more such socket. Packets then take the sockets of the devices, as
	// faults of them can be asked for. Empty: none.
	Control string

	Traces  []Trace
	Summary *trace.Summary // gets every record; nil: none
	// Record starts the recording of the devices' packets; nil: none. Run closes it.
	Record func() (Recorder, error)
	Faults *Faults // in the packets that the devices send; nil: none
	// Wire sends all packets through the sockets of the devices, also those between queue pairs
	// of one device and to other runs on the machine.
	// Without it they pass in memory, unless they are recorded or damaged.
	Wire bool
	// Counters is called with a function that returns the devices' counters at any time; nil: nobody
	// wants them. Run closes what it returns.
	Counters func(read func() []Counters) (io.Closer, error)
}

// inside reports whether packets may pass in memory. A recording and faults need them on the network.
func (c *Config) inside() bool {
	return !c.Wire && c.Record == nil && c.Faults == nil && c.Control == ""
}

// Counters are the counters of a device since the run began, and its objects now.
type Counters struct {
	Name string
	Addr netip.Addr
	rdma.Counters
	adapter.Objects
}

// Device is a device of a run.
type Device struct {
	Name string     // in /sys/class/infiniband
	Addr netip.Addr // the zero value: the first free loopback address

	// Follow gives the device the other addresses of the network interface, too, as long as it has them.
	Follow bool
}

// Trace is a trace of a run.
type Trace struct {
	Create  func() (io.WriteCloser, error) // opens the file that it is written to; nil: standard error
	Options trace.Options
}

// Open starts the trace.
func (t *Trace) Open() (*trace.Writer, error) {
	if t.Create == nil && t.Options.Reasons {
		// The end of the run must not wait for a terminal.
		lines := lineout.New(os.Stderr, func(n uint64) string {
			return fmt.Sprintf("softmkey: warning: reasons that are missing here, because they were not read in time: %d\n", n)
		})
		return trace.New(lines, lines, t.Options), nil
	}
	if t.Create == nil {
		return trace.New(os.Stderr, nil, t.Options), nil
	}
	file, err := t.Create()
	if err != nil {
		return nil, fmt.Errorf("the trace: %w", err)
	}
	return trace.New(file, file, t.Options), nil
}

// Recorder records the packets of networks.
type Recorder interface {
	// Wrap returns a network that records what passes through c.
	Wrap(c packetconn.Conn) packetconn.Conn
	// Lost notes datagrams that were sent through a network that Wrap returned, and lost.
	Lost(c packetconn.Conn, d packetconn.Train)
	Close() error
	// Abort ends a recording in which nothing was recorded, and leaves the file that has its name as it was.
	Abort() error
}

// Faults damage what devices send.
type Faults struct {
	netem.Faults
	Seed uint64 // of the first device; the following devices have the next seeds
	Flip uint64 // the datagram of which one bit is flipped, from 1 on; 0: none

	StrictTimeouts bool // roce.Options.StrictTimeouts
}

// Network returns a network that adds a recording and faults to c, where r and f are not nil. device
// tells the networks of a session apart.
func Network(c packetconn.Conn, r Recorder, f *Faults, device int) packetconn.Conn {
	var lost func(packetconn.Train)
	if r != nil {
		recorded := r.Wrap(c)
		lost = func(d packetconn.Train) { r.Lost(recorded, d) }
		c = recorded
	}
	if f != nil {
		c = f.wrap(c, device, lost)
	}
	return c
}

// wrap returns a network that sends through c with the faults. lost is called with each datagram
// that is lost, if it is not nil.
func (f *Faults) wrap(c packetconn.Conn, device int, lost func(packetconn.Train)) packetconn.Conn {
	o := netem.Options{Lost: lost}
	if f.Flip != 0 {
		o.Filter = func(n uint64, _ netip.AddrPort, _ []byte) netem.Action {
			if n == f.Flip-1 {
				return netem.Corrupt
			}
			return netem.Chance
		}
	}
	return netem.Wrap(c, f.Seed+uint64(device), f.Faults, &o)
}

// StartError is the reason for which a program was not started.
type StartError struct {
	Status int // the exit status that shells have for it: 126 or 127
	Err    error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// DeviceError is the reason for which a device of a Config was not opened.
type DeviceError struct {
	Addr   netip.Addr
	Reason string // follows the address in a sentence; empty: Err is all there is
	Err    error
}

func (e *DeviceError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%v: %v", e.Addr, e.Err)
	}
	return fmt.Sprintf("%v %s", e.Addr, e.Reason)
}
func (e *DeviceError) Unwrap() error { return e.Err }
