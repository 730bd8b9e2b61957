package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// volumeFlags are the flags for encrypted volumes, which are parts of files, and whose data
// units count in other ways than those of keys.
type volumeFlags struct {
	step           sizeFlag
	offset, length offsetFlag
}

func (f *volumeFlags) bind(c *cobra.Command) {
	f.step = 1
	c.Flags().Var(&f.step, "tweak-step", "difference between the tweaks of two data units; without signatures")
	c.Flags().Var(&f.offset, "offset", "begin at this byte of IN, a file or a block device")
	c.Flags().Var(&f.length, "length", "process this many bytes of IN, a file or a block device (default: to its end)")
}

// apply hands the flags on to p. Encryption without signatures needs no key.
func (f *volumeFlags) apply(c *cobra.Command, p *pass, s *mkey.Signature, crypto *mkey.Crypto, d mkeyio.Direction) error {
	p.offset, p.length = max(f.offset.orNone(), 0), f.length.orNone()
	p.parts = c.Flags().Changed("offset") || c.Flags().Changed("length")
	if crypto != nil && s == nil {
		p.encryption = &mkeyio.Encryption{DEK: crypto.DEK, KeyTag: crypto.KeyTag, Unit: crypto.DataUnitSize, Tweak: crypto.InitialTweak, Step: uint64(f.step)}
		p.decrypt = crypto.EncryptOnTX == (d == mkeyio.RX)
	}
	switch {
	case c.Flags().Changed("tweak-step") && p.encryption == nil:
		return errors.New("--tweak-step needs --crypto, and no signatures: the tweaks of a key count up by 1")
	case f.step == 0:
		return errors.New("--tweak-step 0: would encrypt all data units with one tweak")
	case crypto != nil && s != nil && !slices.Contains(sig.KeyBlockSizes(), crypto.DataUnitSize):
		return fmt.Errorf("--unit %d with signatures: a key has data units of %v bytes", crypto.DataUnitSize, sig.KeyBlockSizes())
	}
	return nil
}

// part returns a part of IN, from an offset; a negative length means to its end.
func part(in *os.File, offset, length int64) (mkeyio.Input, error) {
	name := inputName(in.Name())
	if in == os.Stdin {
		name = inputName("-")
	}
	end, ok := seekable(in)
	if !ok {
		return mkeyio.Input{}, fmt.Errorf("%s: --offset and --length need a file or a block device", name)
	}
	if offset > end || length > end-offset {
		return mkeyio.Input{}, fmt.Errorf("%s has %d bytes: --offset and --length are beyond its end", name, end)
	}
	if length < 0 {
		length = end - offset
	}
	return mkeyio.FromAt(offsetReader{in, offset}, length), nil
}

// offsetReader reads a file from an offset on.
type offsetReader struct {
	*os.File
	offset int64
}

// ReadAt implements io.ReaderAt.
func (r offsetReader) ReadAt(p []byte, off int64) (int, error) { return r.File.ReadAt(p, r.offset+off) }
