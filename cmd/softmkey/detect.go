package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/detect"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

func newDetect() *cobra.Command {
	var asJSON bool
	var files separateFlags
	c := &cobra.Command{
		Use:     "detect [flags] IN",
		GroupID: groupFiles,
		Short:   "Find out which signature a file has",
		Long: `Detect tries signatures on some of the blocks of IN, which must be a file or a block
device, and prints the one that fits, as --sig takes it: type, block size, seed, guard,
and the tags that most of the blocks have. It tries block sizes that are multiples of 8 up
to 8K, or powers of two up to 128K, and NVMe's protection information with 8, 16, 32, 64 or
128 bytes of metadata after a block whose size is a power of two. A storage tag that is the
same in all blocks is shown as a part of the reference tag, unless the reference tag wraps.
With --metadata, IN has the blocks alone and FILE has their fields, in the order of the
blocks.

Detect prints how many of the blocks that it tried have the guard of that signature. A
few damaged blocks do not mislead it. It does not count blocks of one repeated byte, and
those whose tags exempt them from the check, such as the unwritten blocks of a drive: of
the others it needs a few. In an encrypted file it finds a signature of the ciphertext, if
there is one.

The exit status is 1 if no signature fits, and 2 if IN cannot be read.`,
		Example: `  softmkey detect disk.dif
  softmkey verify --sig "$(softmkey detect disk.dif)" disk.dif
  softmkey detect --metadata ns1.meta ns1.img
  softmkey detect --json disk.dif | jq .blocks_good`,
		Args: operands("IN"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := files.checkNames(c, args...); err != nil {
				return err
			}
			in, err := files.open(args[0])
			if err != nil {
				return err
			}
			defer files.close(in)
			size, ok := seekable(in)
			if !ok {
				return fmt.Errorf("%s: detect reads at several places: it needs a file or a block device", inputName(args[0]))
			}
			found, ok, err := files.detect(in, size)
			switch {
			case err != nil:
				return err
			case !ok:
				err := fmt.Errorf("%s: no signature fits: it is plain or encrypted data, blank or nearly so, or has a field that this program does not know", inputName(args[0]))
				printError(err)
				if asJSON {
					encodeOutcome(c.OutOrStdout(), failure{Command: c.Name(), File: args[0], Error: err.Error(), Status: exitBad}, true)
				}
				return reported(exitBad)
			}
			if asJSON {
				encodeOutcome(c.OutOrStdout(), newDetection(&found), true)
				return nil
			}
			fmt.Fprintln(c.OutOrStdout(), found.Format)
			message(c.ErrOrStderr(), "%s: %d of the %d blocks that were tried have this guard", inputName(args[0]), found.Good, found.Tried)
			if found.AppTags {
				message(c.ErrOrStderr(), "warning: application tags differ between blocks: app-mask=0 leaves them unchecked")
			}
			if found.StorageTags {
				message(c.ErrOrStderr(), "warning: storage tags differ between blocks: no-storage-check leaves them unchecked")
			}
			if found.RefTags {
				message(c.ErrOrStderr(), "warning: reference tags follow no rule: verify will find them bad")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	files.bindSeparate(c, &files.inFields, "metadata", "IN has the blocks alone, and their fields are in this file")
	return c
}

// detect returns the format that fits IN.
func (f *separateFlags) detect(in *os.File, size int64) (detect.Found, bool, error) {
	if f.fields == nil {
		return detect.Stream(in, size)
	}
	length, ok := seekable(f.fields)
	if !ok {
		return detect.Found{}, false, fmt.Errorf("%s: detect reads at several places: it needs a file or a block device", openName(f.fields))
	}
	return detect.Separate(in, size, f.fields, length)
}

// detection is the outcome of detect as JSON.
type detection struct {
	Command        string `json:"command"`
	Signature      string `json:"signature"`
	Type           string `json:"type"`
	BlockSize      int    `json:"block_size"`
	FieldSize      int    `json:"field_size"`
	AppTag         string `json:"app_tag"`
	RefTag         string `json:"ref_tag"`
	Tried          int    `json:"blocks_tried"`
	Good           int    `json:"blocks_good"`
	AppsDiffer     bool   `json:"app_tags_differ"`
	RefsDiffer     bool   `json:"ref_tags_differ"`
	StorageTag     string `json:"storage_tag"`
	StoragesDiffer bool   `json:"storage_tags_differ"`
}

func newDetection(f *detect.Found) *detection {
	return &detection{
		Command: "detect", Signature: f.Format.String(), Type: f.Format.Type.String(), BlockSize: f.Format.Block(), FieldSize: f.Format.FieldSize(),
		AppTag: fmt.Sprintf("%#x", f.Format.AppTag), RefTag: fmt.Sprintf("%#x", f.Format.RefTag), Tried: f.Tried, Good: f.Good, AppsDiffer: f.AppTags, RefsDiffer: f.RefTags,
		StorageTag: fmt.Sprintf("%#x", f.Format.StorageTag), StoragesDiffer: f.StorageTags,
	}
}

// seekable returns the size of a file or block device.
func seekable(f *os.File) (size int64, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return 0, false
	}
	if info.Mode().IsRegular() {
		return info.Size(), true
	}
	if info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return 0, false
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, false
	}
	size, err = f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, false
	}
	_, err = f.Seek(at, io.SeekStart)
	return size, err == nil
}

// jobFormats returns the signatures of a job's input and output, nil for none.
func jobFormats(j *mkeyio.StreamJob) (in, out *sig.Format) {
	switch s := j.Signature; {
	case s == nil:
		return nil, nil
	case j.Direction == mkeyio.TX:
		return s.Memory, s.Wire
	default:
		return s.Wire, s.Memory
	}
}

// fileFormats is jobFormats for the signatures that stand in the files: crypto hides them.
func fileFormats(j *mkeyio.StreamJob) (in, out *sig.Format) {
	if j.Crypto != nil {
		return nil, nil
	}
	return jobFormats(j)
}

// suggestFormat prints a hint if a command found a file bad because the file does not have the
// given signature at all. The hint names the signature that the file has, if one fits.
func suggestFormat(to io.Writer, in *os.File, name string, given *sig.Format, found error) {
	var bad *sig.Error
	if given == nil || !errors.As(found, &bad) && !errors.Is(found, io.ErrUnexpectedEOF) {
		return
	}
	size, ok := seekable(in)
	if !ok {
		return
	}
	// An error of reading is reported by the command that needs the data.
	if fits, err := detect.Fits(in, size, *given); err != nil || fits {
		return
	}
	other, ok, err := detect.Stream(in, size)
	switch {
	case err != nil:
	case ok:
		// What fits no better is the given signature in other words, or has tags that follow no rule.
		if fits, err := detect.Fits(in, size, other.Format); err != nil || !fits {
			return
		}
		message(to, "hint: most blocks of %s do not fit %v: it looks like %v", inputName(name), given, other.Format)
	case !ok:
		message(to, "hint: most blocks of %s do not fit %v, and no other signature fits: is it plain or encrypted data?", inputName(name), given)
	}
}
