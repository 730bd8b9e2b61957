package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/tool/draw"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

func newInspect() *cobra.Command {
	var format sigFlag
	var files separateFlags
	var blocks parsed[blockRange]
	var asJSON, silent bool
	var drawing fileFlag
	c := &cobra.Command{
		Use:     "inspect --sig SIG [--blocks A-B] [flags] IN",
		GroupID: groupFiles,
		Short:   "Show the fields of blocks, stored and computed",
		Long: `Inspect prints a line for each block of a protected stream: its number, the offset of
its first byte in IN, the stored field, the field computed from the data and SIG, and
the part that is bad if they differ. A T10-DIF field is shown as guard, application tag
and reference tag. A block whose tags exclude it from the check is called escaped. With
--metadata, IN has the blocks alone and FILE has their fields, in the order of the blocks.

With --json there is an object for each block, and one for the outcome. The stored and
the computed field of a block are whole: a T10-DIF field is one number of guard,
application tag and reference tag. ("softmkey help json" says how JSON is written.)

The exit status is 1 if a block is bad.`,
		Example: `  softmkey inspect --sig t10dif --blocks 0-15 disk.dif
  softmkey inspect --sig nvme16:4096,ref=2048 --metadata lba2048.pi lba2048.img
  softmkey inspect --sig t10dif --draw blocks.svg disk.dif
  softmkey inspect --sig t10dif disk.dif | less
  softmkey inspect --sig crc32c:4096 --blocks 0x1000 --json disk.crc`,
		Args: operands("IN"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(format.need(c, "sig"), files.checkNames(c, args...)); err != nil {
				return err
			}
			in, err := files.open(args[0])
			if err != nil {
				return err
			}
			defer files.close(in)
			out := bufio.NewWriter(c.OutOrStdout())
			i := inspector{format: format.format, fields: files.fields, blocks: blocks.value, given: blocks.text, file: args[0], name: inputName(args[0]), silent: silent || asJSON, warnings: c.ErrOrStderr()}
			i.printer = &tablePrinter{out: out, format: i.format}
			if asJSON {
				i.printer = jsonPrinter{json.NewEncoder(out), i.format}
			}
			if drawing != "" {
				// The tags of i.format are those of the first block of the stream.
				i.drawn = &draw.Key{Title: i.name, First: blocks.value.first, Wire: drawnDomain(&i.format)}
			}
			err = i.run(c, in)
			if asJSON && (err == nil || i.report.Errors > 0) {
				encodeOutcome(out, i.outcome(), complete(err))
			}
			err = cmp.Or(err, out.Flush())
			if i.drawn != nil && (err == nil || i.report.Errors > 0) {
				if err2 := writeOutput(string(drawing), outfile.Options{}, i.drawn.SVG()); err2 != nil {
					return err2
				}
			}
			if !asJSON && files.fields == nil {
				suggestFormat(c.ErrOrStderr(), in, args[0], &i.format, err)
			}
			return err
		},
	}
	format.bind(c, "sig", "signature that IN has")
	blockRanges.bind(c, &blocks, "blocks", "numbers of the first and the last block to show; A alone is one block, A- goes to the end (default all)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table, the last one of the outcome")
	files.bindSeparate(c, &files.inFields, "metadata", "IN has the blocks alone, and their fields are in this file")
	c.Flags().BoolVar(&silent, "no-warnings", false, "print no warnings")
	c.Flags().Var(&drawing, "draw", "draw the blocks to this file as SVG: the first ones, or those around the first bad one")
	annotate(c, writesFile, "draw")
	return c
}

// blockRange is a range of blocks.
type blockRange struct {
	first uint64
	count uint64 // 0: to the end
}

// blockRanges are flags whose value is a range of blocks.
var blockRanges = kind[blockRange]{"A-B", parseBlockRange, nil}

func parseBlockRange(s string) (r blockRange, err error) {
	a, b, ranged := strings.Cut(s, "-")
	r.first, err = number.Parse(a, 48)
	last := r.first
	if err == nil && b != "" {
		last, err = number.Parse(b, 48)
	}
	if err != nil || last < r.first {
		return r, errors.New("must be A-B, A- or A, with block numbers in decimal or in hexadecimal after 0x, and A not above B")
	}
	if !ranged || b != "" {
		r.count = last - r.first + 1
	}
	return r, nil
}

// inspector shows the blocks of a stream.
type inspector struct {
	format   sig.Format
	fields   *os.File // with the fields, if they are apart from the blocks; nil: they are not
	blocks   blockRange
	given    string // as the user gave it; "": all
	file     string // the name as it was given
	name     string // and in messages
	printer  printer
	warnings io.Writer

	bad map[uint64]sig.Error // errors of the blocks that are being checked, by block number

	silent bool // print no warnings

	report mkeyio.JobReport
	ranges ranges    // of bad blocks
	drawn  *draw.Key // the picture; nil: none
}

// printer shows blocks, one by one.
type printer interface {
	begin(first, last uint64)
	block(b inspected)
}

// inspected is the information about a block that a printer shows.
type inspected struct {
	number, offset   uint64
	stored, computed []byte
	bad              sig.Kind // 0: the block is good
	escaped          bool
}

// mostBad is the largest number of bad blocks that are kept for the picture.
const mostBad = 1000

// outcome returns the final report for --json.
func (i *inspector) outcome() outcome {
	i.report.BytesIn = i.report.Blocks * int64(i.stride())
	return newOutcome("inspect", i.file, i.report, &i.ranges)
}

// drawnDomain returns a format as a picture shows it.
func drawnDomain(f *sig.Format) *draw.Domain {
	d := &draw.Domain{Type: f.Type.String(), BlockSize: uint64(f.Block()), FieldSize: uint64(f.FieldSize())}
	if f.Type == sig.T10DIF {
		app, ref := f.AppTag, uint32(f.RefTag)
		d.AppTag, d.RefTag, d.IncRef = &app, &ref, f.Flags == 0 || f.Flags&sig.RefRemap != 0
	}
	return d
}

// batch is the approximate number of bytes of the stream that are read at a time.
const batch = 64 << 10

// run shows the blocks. It returns the error of the first bad block.
func (i *inspector) run(c *cobra.Command, in *os.File) error {
	stride := uint64(i.format.Stride())
	start := time.Now()
	defer func() { i.report.Elapsed = time.Since(start) }()
	last, err := i.seek(in)
	if err != nil {
		return err
	}
	check, err := sig.NewTransform(sig.TransformConfig{In: i.format})
	if err != nil {
		return err
	}
	// The fields are computed for the metadata that is there, which both sides have.
	generate, err := sig.NewTransform(sig.TransformConfig{In: i.format, CheckMask: new(sig.Mask), Out: i.format, CopyMask: new(sig.Mask)})
	if err != nil {
		return err
	}
	i.printer.begin(i.blocks.first, last)
	var found error
	buf := make([]byte, max(batch/stride, 1)*stride)
	fields := make([]byte, len(buf)/int(stride)*i.format.FieldSize())
	for number := i.blocks.first; ; {
		want := uint64(len(buf)) / stride
		if i.blocks.count > 0 {
			want = min(want, i.blocks.first+i.blocks.count-number)
		}
		n, err := i.read(waiting{in}, buf[:want*stride])
		if err != nil {
			return err
		}
		got := n / int(stride)
		i.bad = make(map[uint64]sig.Error)
		src := sig.Interleaved(i.format, buf)
		dst := sig.Blocks{Data: buf, DataStride: int(stride), Fields: fields, FieldStride: i.format.FieldSize()}
		check.Run(src, src, got, number, func(e sig.Error) bool {
			i.bad[e.Block] = e
			return true
		})
		generate.Run(dst, src, got, number, nil)
		for k := range got {
			b := i.describe(number+uint64(k), buf[k*int(stride):], fields[k*i.format.FieldSize():])
			i.printer.block(b)
			i.report.Blocks++
			if b.escaped {
				i.report.Escaped++
			}
			if i.drawn != nil {
				i.drawn.Length += stride
			}
			if e, bad := i.bad[b.number]; bad {
				e.Offset = b.offset
				if found == nil {
					found, i.report.First = &e, &mkey.BadBlock{Domain: mkey.WireDomain, Sig: e}
				}
				i.report.Errors++
				i.ranges.add(b.number)
				if i.drawn != nil && i.report.Errors <= mostBad {
					i.drawn.Bad = append(i.drawn.Bad, draw.Bad{Kind: e.Kind.String(), Domain: "wire", Block: e.Block, Offset: e.Offset, Stored: e.Stored, Computed: e.Computed})
				}
			}
		}
		number += uint64(got)
		if ctx := c.Context(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if uint64(n) < want*stride || i.blocks.count > 0 && number == i.blocks.first+i.blocks.count {
			return cmp.Or(i.end(number, n%int(stride)), found)
		}
	}
}

// seek goes to the first block of the range and returns the number of the last one. The length
// of a pipe is not known, so its blocks may end earlier or later.
func (i *inspector) seek(in *os.File) (last uint64, err error) {
	stride := int64(i.stride())
	info, err := in.Stat()
	if err == nil && i.fields != nil {
		_, err = separateInput(i.format, in, i.fields) // their lengths must fit
	}
	if err != nil {
		return 0, err
	}
	last = i.blocks.first + max(i.blocks.count, 1) - 1
	skip := int64(i.blocks.first) * stride
	if skip/stride != int64(i.blocks.first) {
		return 0, fmt.Errorf("%s: --blocks %s: no file is so long", i.name, i.given)
	}
	if !info.Mode().IsRegular() {
		n, err := io.CopyN(io.Discard, waiting{in}, skip)
		if errors.Is(err, io.EOF) {
			return 0, i.absent(n / stride)
		}
		return last, err
	}
	from, err := in.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	whole := (info.Size() - from) / stride
	if i.given != "" && int64(i.blocks.first) >= whole {
		return 0, i.absent(whole)
	}
	if i.fields != nil {
		if _, err := i.fields.Seek(int64(i.blocks.first)*int64(i.format.FieldSize()), io.SeekCurrent); err != nil {
			return 0, err
		}
	}
	if i.blocks.count == 0 || int64(last) >= whole {
		last = uint64(max(whole, 1) - 1)
	}
	_, err = in.Seek(skip, io.SeekCurrent)
	return last, err
}

// stride returns the number of bytes from one block of IN to the next.
func (i *inspector) stride() int {
	if i.fields != nil {
		return i.format.Block()
	}
	return i.format.Stride()
}

// read reads the next blocks with their fields, and returns the number of bytes.
func (i *inspector) read(in io.Reader, buf []byte) (n int, err error) {
	if i.fields == nil {
		n, err = io.ReadFull(in, buf)
	} else {
		size := i.format.Block()
		for err == nil && n < len(buf) {
			if _, err = io.ReadFull(in, buf[n:][:size]); err == nil {
				if _, err = io.ReadFull(i.fields, buf[n+size:][:i.format.FieldSize()]); err == nil {
					n += i.format.Stride()
				}
			}
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

func (i *inspector) absent(whole int64) error {
	return fmt.Errorf("%s: --blocks %s: there are %d blocks of %d bytes, counted from 0", i.name, i.given, whole, i.stride())
}

// end reports the bytes after the last whole block.
func (i *inspector) end(number uint64, rest int) error {
	size := i.format.Block()
	if rest >= size {
		return fmt.Errorf("%s: block %d has only %d of the %d bytes of its field, the stream was truncated", i.name, number, rest-size, i.format.FieldSize())
	}
	i.report.Tail = int64(rest)
	if i.report.Blocks == 0 && i.given != "" {
		return i.absent(int64(number))
	}
	if !i.silent {
		warnTail(i.warnings, i.name, int64(rest))
		if i.report.Blocks == 0 {
			message(i.warnings, "warning: %s: there is no whole block: nothing was checked", i.name)
		}
	}
	return nil
}

func (i *inspector) describe(number uint64, block, computed []byte) inspected {
	size, stride := i.format.Block(), i.format.Stride()
	b := inspected{
		number: number, offset: number * uint64(i.stride()),
		stored: block[size:stride], computed: computed[:stride-size],
		bad: i.bad[number].Kind,
	}
	b.escaped = b.bad == 0 && i.format.Escapes(i.format.Field(b.stored))
	return b
}
