package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/draw"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// pictures are the values of --picture.
var pictures = []string{"key", "timeline", "way", "states"}

// drawFlags are the flags of draw.
type drawFlags struct {
	output  string
	picture string
	number  uint32
	request int64
	narrow  bool
}

func newDraw() *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Use:     "draw [flags] -o OUT FILE...",
		GroupID: groupDevice,
		Short:   "Draw memory keys, connections and requests as SVG",
		Long: `Draw makes a picture of a run. FILE is a trace (softmkey run --trace=FILE
--trace-format json) or a recording of packets (--pcap); several may be given, such as the
recordings of both sides. A page of a run as it goes is softmkey run --view.

The pictures are
  key       a memory key: its buffers, the memory domain, the wire domain with its fields,
            encryption, and the first bad block with its stored and computed value
  timeline  the packets of a connection: losses, acknowledgements, repeats
  way       the way of one RDMA READ or WRITE, through the memory keys of both sides
  states    the states of a queue pair: who moved it, and with which attributes

Without --picture draw chooses: a way if there is one with memory keys on both sides, or
else a key, a timeline, or states. Without --number and --request it draws the one that
shows most: that with a bad block, or with the most packets.`,
		Example: `  softmkey run --trace=run.json --trace-format json --pcap run.pcapng -- ./program
  softmkey draw -o key.svg --picture key run.json
  softmkey draw -o timeline.svg --picture timeline run.pcapng peer.pcapng`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(c, errors.New("FILE is missing: usage: "+usageLine(c)))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(append(pictures, ""), f.picture) {
				return usage(c, fmt.Errorf("--picture %q: the pictures are %s", f.picture, strings.Join(pictures, ", ")))
			}
			return f.run(args)
		},
	}
	c.Flags().StringVarP(&f.output, "output", "o", "-", "the file to write, `OUT`")
	annotate(c, writesFile, "output")
	c.Flags().StringVar(&f.picture, "picture", "", "`PICTURE` to draw: key, timeline, way or states")
	completeWords(c, "picture", pictures...)
	c.Flags().Uint32Var(&f.number, "number", 0, "number `N` of the memory key, of the QP, or of the QP that requests are sent to")
	c.Flags().Int64Var(&f.request, "request", -1, "number `N` of the request whose way is drawn, with --number for its QP")
	c.Flags().BoolVar(&f.narrow, "narrow", false, "draw keys and ways 480 pixels wide, for telephones and columns, with fewer blocks")
	return c
}

// material is the content of the files that are drawn.
type material struct {
	trace      []draw.Record
	recordings [][]pcap.Packet
}

func (m *material) read(name string) error {
	in, err := openInput(name)
	if err != nil {
		return err
	}
	defer in.Close()
	head := make([]byte, 4)
	n, _ := in.ReadAt(head, 0) // fails for a pipe, which must hold a trace
	if n == len(head) && bytes.Equal(head, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		packets, err := pcap.Read(in)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.recordings = append(m.recordings, packets)
		return nil
	}
	records, err := draw.ReadTrace(waiting{in})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.trace = append(m.trace, records...)
	return nil
}

// run draws the picture of files.
func (f *drawFlags) run(files []string) error {
	var m material
	for _, name := range files {
		if err := m.read(name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(m.trace, func(a, b draw.Record) int { return a.Time.Compare(b.Time) })
	picture, err := f.one(&m)
	if err != nil {
		return err
	}
	return writeOutput(f.output, outfile.Options{}, picture)
}

// one returns the picture that --picture and the other flags choose.
func (f *drawFlags) one(m *material) ([]byte, error) {
	ways, keys, connections, states := draw.Ways(m.trace), draw.Keys(m.trace), draw.Connections(m.recordings...), draw.AllStates(m.trace)
	if len(ways)+len(keys)+len(connections)+len(states) == 0 {
		return nil, errors.New("draw: there is nothing to draw: the trace has no queue pair and no memory key, and no reliable connection was recorded")
	}
	best := draw.Best(ways)
	picture := f.picture
	if picture == "" {
		switch {
		case best != nil && best.Requester != nil && best.Responder != nil || f.request >= 0:
			picture = "way"
		case len(keys) > 0:
			picture = "key"
		case len(connections) > 0:
			picture = "timeline"
		default:
			picture = "states"
		}
	}
	switch picture {
	case "way":
		if f.number != 0 || f.request >= 0 {
			best = nil
			for _, w := range ways {
				if (f.number == 0 || w.QP == f.number) && (f.request < 0 || w.Request == uint64(f.request)) {
					best = w
				}
			}
		}
		if best == nil {
			return nil, missing("RDMA READ or WRITE", len(ways))
		}
		best.Narrow = f.narrow
		return best.SVG(), nil
	case "states":
		for _, s := range states {
			if f.number == 0 || s.QP == f.number {
				return s.SVG(), nil
			}
		}
		return nil, missing("queue pair", len(states))
	case "key":
		var key *draw.Key
		for _, k := range keys {
			if f.number != 0 && k.Number != f.number {
				continue
			}
			if key == nil || len(k.Bad) > 0 || len(key.Bad) == 0 {
				key = k
			}
		}
		if key == nil {
			return nil, missing("configuration of a memory key", len(keys))
		}
		key.Narrow = f.narrow
		return key.SVG(), nil
	}
	if f.request >= 0 {
		return nil, errors.New("draw: --request chooses the way of a request: a timeline has all of a connection")
	}
	for _, c := range connections {
		if f.number == 0 || c.DestQP == f.number {
			return c.SVG(), nil
		}
	}
	return nil, missing("reliable connection", len(connections))
}

// missing returns the error for a picture that the files do not have. n is how many of its kind they
// have.
func missing(what string, n int) error {
	if n == 0 {
		return fmt.Errorf("draw: the files have no %s", what)
	}
	return fmt.Errorf("draw: the files have no %s with the numbers of --number and --request; with others: %d", what, n)
}
