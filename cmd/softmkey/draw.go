package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/draw"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// drawFlags are the flags of draw.
type drawFlags struct {
	output  string
	picture string
	number  uint32
	request int64
	html    bool
}

func newDraw() *cobra.Command {
	var f drawFlags
	c := &cobra.Command{
		Annotations: map[string]string{runsProgram: "--"},

		Use: `draw [flags] -o OUT FILE...
  softmkey draw [flags] -o OUT -- PROGRAM [ARG...]`,
		GroupID: groupDevice,
		Short:   "Draw memory keys, connections and requests as SVG",
		Long: `Draw makes a picture of a run. FILE is a trace (softmkey run --trace=FILE
--trace-format json) or a recording of packets (--pcap); several may be given, such as the
recordings of both sides. With PROGRAM, draw runs it as softmkey run does, draws what it
did, and ends with its exit status.

The pictures are
  key       a memory key: its buffers, the memory domain, the wire domain with its fields,
            encryption, and the first bad block with its stored and computed value
  timeline  the packets of a connection: losses, acknowledgements, repeats
  way       the way of one RDMA READ or WRITE through the memory keys of both sides

Without --picture draw chooses: a way if there is one with memory keys on both sides, or
else a key, or else a timeline. Without --number and --request it draws the one that shows
most: that with a bad block, or with the most packets.

--html makes a page with every key, way and connection. It needs no network.`,
		Example: `  softmkey run --trace=run.json --trace-format json --pcap run.pcapng -- ./program
  softmkey draw -o key.svg --picture key run.json
  softmkey draw -o timeline.svg --picture timeline run.pcapng peer.pcapng
  softmkey draw -o run.html --html run.json run.pcapng
  softmkey draw -o run.html --html -- ./program`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(c, errors.New("FILE or -- PROGRAM is missing: usage: "+usageLine(c)))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			live := c.ArgsLenAtDash() == 0
			if live && f.output == "-" {
				return usage(c, errors.New("--output -: PROGRAM has the standard output: name a file"))
			}
			if !slices.Contains([]string{"", "key", "timeline", "way"}, f.picture) {
				return usage(c, fmt.Errorf("--picture %q: the pictures are key, timeline and way", f.picture))
			}
			if !live {
				return f.run(args, strings.Join(args, ", "))
			}
			files, err := liveRun(args)
			if files != "" {
				defer os.RemoveAll(files)
			}
			var status *exec.ExitError
			if err != nil && !errors.As(err, &status) {
				return err
			}
			if _, err := os.Stat(filepath.Join(files, "run.json")); err != nil && status != nil {
				return programStatus(max(status.ExitCode(), 1)) // run has said why PROGRAM was not started
			}
			if err2 := f.run([]string{filepath.Join(files, "run.json"), filepath.Join(files, "run.pcapng")}, strings.Join(args, " ")); err2 != nil {
				return err2
			}
			if status != nil { // PROGRAM has printed its error
				return programStatus(max(status.ExitCode(), 1))
			}
			return nil
		},
	}
	c.Flags().StringVarP(&f.output, "output", "o", "-", "the file to write, `OUT`")
	annotate(c, writesFile, "output")
	c.Flags().StringVar(&f.picture, "picture", "", "`PICTURE` to draw: key, timeline or way")
	completeWords(c, "picture", "key", "timeline", "way")
	c.Flags().Uint32Var(&f.number, "number", 0, "number `N` of the memory key, or of the QP that requests are sent to")
	c.Flags().Int64Var(&f.request, "request", -1, "number `N` of the request whose way is drawn, with --number for its QP")
	c.Flags().BoolVar(&f.html, "html", false, "write a page with all pictures")
	for _, other := range []string{"picture", "number", "request"} {
		exclusive(c, "html", other)
	}
	return c
}

// liveRun runs a program under softmkey run, and returns a new folder with its trace and recording.
func liveRun(program []string) (dir string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "softmkey-draw-"); err != nil {
		return "", err
	}
	args := []string{"run", "--trace=" + filepath.Join(dir, "run.json"), "--trace-format", "json", "--pcap", filepath.Join(dir, "run.pcapng"), "--"}
	c := exec.Command(self, append(args, program...)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return dir, c.Run()
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
	records, err := draw.ReadTrace(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.trace = append(m.trace, records...)
	return nil
}

// run draws the picture of files, or a page with the given title.
func (f *drawFlags) run(files []string, title string) error {
	var m material
	for _, name := range files {
		if err := m.read(name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(m.trace, func(a, b draw.Record) int { return a.Time.Compare(b.Time) })
	var picture []byte
	var err error
	if f.html {
		picture, err = page(&m, title)
	} else {
		picture, err = f.one(&m)
	}
	if err != nil {
		return err
	}
	return writeOutput(f.output, outfile.Options{}, picture)
}

// errNothing is the error for files of which there is no picture.
var errNothing = errors.New("draw: there is nothing to draw: no memory key was configured, and no reliable connection recorded")

// one returns the picture that --picture and the other flags choose.
func (f *drawFlags) one(m *material) ([]byte, error) {
	ways, keys, connections := draw.Ways(m.trace), draw.Keys(m.trace), draw.Connections(m.recordings...)
	if len(ways)+len(keys)+len(connections) == 0 {
		return nil, errNothing
	}
	best := draw.Best(ways)
	picture := f.picture
	if picture == "" {
		switch {
		case best != nil && best.Requester != nil && best.Responder != nil || f.request >= 0:
			picture = "way"
		case len(keys) > 0:
			picture = "key"
		default:
			picture = "timeline"
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
			return nil, missing("RDMA READ or WRITE through a memory key", len(ways))
		}
		return best.SVG(), nil
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

// mostPictures bounds the pictures of each kind in a page.
const mostPictures = 200

func drawn[T any](all []T) []T { return all[:min(len(all), mostPictures)] }

// page returns an HTML page with the pictures of requests, keys and connections: of each kind the first mostPictures.
func page(m *material, title string) ([]byte, error) {
	var all []draw.Picture
	add := func(group, id string, n int, title string, svg []byte) {
		all = append(all, draw.Picture{ID: fmt.Sprintf("%s-%d", id, n+1), Group: group, Title: title, SVG: svg})
	}
	for i, w := range drawn(draw.Ways(m.trace)) {
		add("ways of requests", "way", i, fmt.Sprintf("request %d: %s of %d bytes, QP %#x", w.Request, w.Op, w.Bytes, w.QP), w.SVG())
	}
	for i, k := range drawn(draw.Keys(m.trace)) {
		add("memory keys", "key", i, fmt.Sprintf("%#x at %s", k.Number, k.Time.Format("15:04:05.000000")), k.SVG())
	}
	for i, c := range drawn(draw.Connections(m.recordings...)) {
		add("connections", "connection", i, c.Title(), c.SVG())
	}
	if len(all) == 0 {
		return nil, errNothing
	}
	return draw.Page(title, all), nil
}
