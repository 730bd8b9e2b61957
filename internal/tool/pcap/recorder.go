package pcap

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/packetconn"
)

// Options tune a Recorder. The zero value, and nil, mean the defaults.
type Options struct {
	Now     func() time.Time // the clock of the recording; nil: time.Now
	Context context.Context  // as in outfile.Options
}

// bufferSize holds several batches of packets, so that writes to the file are large.
const bufferSize = 1 << 20

// Recorder writes one file. It may record any number of connections at the same time.
//
// An error of writing ends the recording, but does not disturb the traffic. Close returns it.
type Recorder struct {
	now  func() time.Time
	file *outfile.File // nil for NewRecorder

	mu      sync.Mutex // guards the fields below, and keeps packets in order
	queue   *queue     // of an output that may block; nil: none
	buf     *bufio.Writer
	w       *pcapgo.NgWriter   // nil until there is an interface
	packet  []byte             // scratch
	trains  []packetconn.Train // scratch
	packets uint64
	missing uint64 // packets that were left out since the last one that was recorded
	dropped uint64 // packets that were left out
	err     error  // the first failure
	closed  bool
}

// NewRecorder returns a Recorder that writes to w. Closing it does not close w.
func NewRecorder(w io.Writer, opts *Options) *Recorder {
	r := &Recorder{now: time.Now, buf: bufio.NewWriterSize(w, bufferSize)}
	if opts != nil && opts.Now != nil {
		r.now = opts.Now
	}
	return r
}

// Create returns a Recorder for a file, which appears under its name at Close and
// replaces a file that was there. Only its owner may read a new file, because it
// holds the data of the packets. If path names a pipe, for example to Wireshark, or
// a device, the recorder writes to that while packets come. Packets are left out while its
// reader is late: a comment of the next packet has their number, and so have the statistics at
// the end of the recording.
func Create(path string, opts *Options) (*Recorder, error) {
	if path == "-" {
		return nil, errors.New("--pcap -: a recording does not go to standard output: name a file, a pipe or a device")
	}
	o := outfile.Options{Mode: 0o600}
	if opts != nil {
		o.Context = opts.Context
	}
	f, err := outfile.Create(path, o)
	if err != nil {
		return nil, err
	}
	if f.IsStdout() {
		return nil, fmt.Errorf("--pcap %s: standard output goes there: name another file", path)
	}
	r := NewRecorder(f, opts)
	r.file = f
	if f.Direct() {
		r.queue = newQueue(f)
		r.buf.Reset(r.queue)
	}
	return r, nil
}

// Packets returns how many packets have been recorded.
func (r *Recorder) Packets() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packets
}

// Close ends the recording and gives the file its name. It returns the first error
// of the recording; the file is removed then. Connections continue without being
// recorded.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.closed = true
	if r.w == nil {
		r.addInterface("none") // pcapng readers expect an interface
	}
	if r.err == nil && r.dropped > 0 {
		r.err = r.w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
			LastUpdate: r.now(), PacketsReceived: r.packets + r.dropped, PacketsDropped: r.dropped, Comment: "packets left out because the reader of the recording was late",
		})
	}
	if r.err == nil {
		r.err = r.w.Flush()
	}
	// The buffer keeps its first error, which r.err may be.
	flushed := r.buf.Flush()
	err := cmp.Or(r.err, flushed)
	if r.queue != nil {
		err = cmp.Or(err, r.queue.close())
	}
	if r.file == nil {
		return err
	}
	if err != nil {
		r.file.Abandon()
		return r.file.Explain(err)
	}
	return r.file.Commit()
}

// Abort ends the recording and removes the file.
func (r *Recorder) Abort() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.closed = true
	if r.file == nil {
		return nil
	}
	if r.queue != nil {
		_ = r.queue.close()
	}
	r.file.Abandon()
	return nil
}

// addInterface writes an interface's description and returns its number.
func (r *Recorder) addInterface(name string) int {
	intf := pcapgo.NgInterface{Name: name, OS: runtime.GOOS, LinkType: layers.LinkTypeRaw}
	if r.w == nil {
		info := pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "softmkey"}
		w, err := pcapgo.NewNgWriterInterface(r.buf, intf, pcapgo.NgWriterOptions{SectionInfo: info})
		r.fail(err)
		r.w = w
		return 0
	}
	id, err := r.w.AddInterface(intf)
	r.fail(err)
	return id
}

func (r *Recorder) fail(err error) {
	r.err = cmp.Or(r.err, err)
}

// LostComment is the comment of packets that were lost on purpose.
const LostComment = "lost on purpose (--fault): never sent"

// Directions of a packet, as pcapng's epb_flags option has them.
var (
	inbound  = pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}}
	outbound = pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}}
	lost     = pcapgo.NgPacketOptions{Flags: outbound.Flags, Comments: []string{LostComment}}
)

// writePacket records r.packet. The caller holds r.mu.
func (r *Recorder) writePacket(intf int, when time.Time, dir *pcapgo.NgPacketOptions) {
	if r.err != nil || r.closed {
		return
	}
	ci := gopacket.CaptureInfo{Timestamp: when, CaptureLength: len(r.packet), Length: len(r.packet), InterfaceIndex: intf}
	if r.queue != nil && r.queue.full() {
		r.missing, r.dropped = r.missing+1, r.dropped+1
		return
	}
	options := *dir
	if r.missing > 0 {
		options.Comments = append(slices.Clone(options.Comments), fmt.Sprintf("%d packets before this one were left out: the reader of the recording was late", r.missing))
		r.missing = 0
	}
	if r.err = r.w.WritePacketWithOptions(ci, r.packet, options); r.err == nil {
		r.packets++
	}
}
