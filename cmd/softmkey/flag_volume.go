package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/luks"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// volumeFlags are the flags for encrypted volumes, which are parts of files, and whose data
// units count in other ways than those of keys.
type volumeFlags struct {
	step           parsed[int64]
	offset, length parsed[int64]
	luks           bool
	header         fileFlag // with the header of the volume; empty: it is at the beginning of the volume
}

// bind adds the flags to a command whose operand has a name.
func (f *volumeFlags) bind(c *cobra.Command, operand string) {
	f.step.set(1)
	sizes.bind(c, &f.step, "tweak-step", "difference between the tweaks of two data units; without signatures")
	offsets.bind(c, &f.offset, "offset", "begin at this byte of "+operand+", a file or a block device")
	offsets.bind(c, &f.length, "length", "use this many bytes of "+operand+", a file or a block device (default: to its end)")
	c.Flags().BoolVar(&f.luks, "luks", false, operand+" is a volume of LUKS1 or LUKS2 with aes-xts-plain64: take offset, length, unit and tweaks from its header, and check that --dek is its volume key")
	c.Flags().Var(&f.header, "luks-header", "as --luks, with the header in this file: a detached header, or a backup of the header")
	for _, other := range []string{"offset", "length", "unit", "tweak", "tweak-step", "kek"} {
		exclusive(c, "luks", other)
		exclusive(c, "luks-header", other)
	}
}

// ofLUKS reports whether a volume of LUKS is given.
func (f *volumeFlags) ofLUKS() bool { return f.luks || f.header != "" }

// readLUKS reads the header of a volume for a flag, and returns the length of the file, also without a header.
func readLUKS(name, flag string) (v *luks.Volume, end int64, err error) {
	in, err := openInput(name)
	if err != nil {
		return nil, 0, err
	}
	if in != os.Stdin {
		defer in.Close()
	}
	end, ok := seekable(in)
	if !ok {
		return nil, 0, fmt.Errorf("%s: %s needs a file or a block device", inputName(name), flag)
	}
	if v, err = luks.Read(in); err != nil {
		err = fmt.Errorf("%s: %s: %w", inputName(name), flag, err)
	}
	return v, end, err
}

// fromHeader gives the flags, and those of the crypto, the values in the header of a LUKS volume, if --luks is given.
func (f *volumeFlags) fromHeader(crypto *cryptoFlags, name string) error {
	if !f.ofLUKS() {
		return nil
	}
	v, end, err := readLUKS(name, "--luks")
	switch {
	case f.header != "":
		v, _, err = readLUKS(string(f.header), "--luks-header")
	case err == nil:
		if err = v.Detached(); err != nil {
			err = fmt.Errorf("%s: --luks: %w; --luks-header names it", inputName(name), err)
		}
	}
	if err != nil {
		return err
	}
	if crypto.dek == "" {
		return fmt.Errorf("--luks needs the volume key: --dek FILE ('cryptsetup luksDump --dump-volume-key --volume-key-file FILE %s' writes it)", name)
	}
	crypto.fits = func(key []byte) error {
		fits, err := v.Fits(ending, key)
		if err == nil && !fits {
			err = fmt.Errorf("%s is not the volume key of %s: its digest is another", inputName(string(crypto.dek)), inputName(name))
		}
		return err
	}
	length := v.Length
	if length < 0 {
		length = end - v.Offset
	}
	if length < int64(v.Sector) {
		return fmt.Errorf("%s: --luks: the data begins at byte %d, and the file ends at %d: it is the header of a volume, and not the volume", inputName(name), v.Offset, end)
	}
	length -= length % int64(v.Sector) // a volume has whole sectors
	f.step.set(int64(v.Step))
	f.offset.set(v.Offset)
	f.length.set(length)
	crypto.unit.value, crypto.tweak.value = strconv.Itoa(v.Sector), xts.Tweak{Lo: v.Tweak}
	return nil
}

// encryption returns the encryption without signatures that the flags describe, or nil if there are signatures or is
// no crypto: then a key does it.
func (f *volumeFlags) encryption(c *cobra.Command, s *mkey.Signature, crypto *mkey.Crypto) (*mkeyio.Encryption, error) {
	var e *mkeyio.Encryption
	if crypto != nil && s == nil {
		e = &mkeyio.Encryption{DEK: crypto.DEK, KeyTag: crypto.KeyTag, Unit: crypto.DataUnitSize, Tweak: crypto.InitialTweak, Step: uint64(f.step.value)}
	}
	switch {
	case c.Flags().Changed("tweak-step") && e == nil:
		return nil, errors.New("--tweak-step needs --crypto, and no signatures: the tweaks of a key count up by 1")
	case f.step.value == 0:
		return nil, errors.New("--tweak-step 0: would encrypt all data units with one tweak")
	case crypto != nil && s != nil && !slices.Contains(sig.KeyBlockSizes(), crypto.DataUnitSize):
		return nil, fmt.Errorf("--unit %d with signatures: a key has data units of %v bytes", crypto.DataUnitSize, sig.KeyBlockSizes())
	}
	return e, nil
}

// apply hands the flags on to p. Encryption without signatures needs no key.
func (f *volumeFlags) apply(c *cobra.Command, p *pass, s *mkey.Signature, crypto *mkey.Crypto, d mkeyio.Direction) error {
	p.offset, p.length = f.offset.or(0), f.length.or(-1)
	p.parts = f.offset.given || f.length.given
	var err error
	p.encryption, err = f.encryption(c, s, crypto)
	p.decrypt = crypto != nil && crypto.EncryptOnTX == (d == mkeyio.RX)
	return err
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
	length, err := partLength(name, end, offset, length)
	return mkeyio.FromAt(offsetReader{in, offset}, length), err
}

// partLength returns the length of a part of a file with end bytes; a negative length means to its end.
func partLength(name string, end, offset, length int64) (int64, error) {
	if offset > end {
		return 0, fmt.Errorf("%s has %d bytes: --offset %d is beyond its end", name, end, offset)
	}
	if length > end-offset {
		return 0, fmt.Errorf("%s has %d bytes from --offset on: --length %d is beyond its end", name, end-offset, length)
	}
	if length < 0 {
		length = end - offset
	}
	return length, nil
}

// offsetReader reads a file from an offset on.
type offsetReader struct {
	*os.File
	offset int64
}

// ReadAt implements io.ReaderAt.
func (r offsetReader) ReadAt(p []byte, off int64) (int, error) { return r.File.ReadAt(p, r.offset+off) }
