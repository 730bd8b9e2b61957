package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/bytesize"
	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
	"github.com/spf13/cobra"
)

// choiceFlag is a flag whose value is one of a few words.
type choiceFlag struct {
	choices []string
	value   string
}

// String implements pflag.Value.
func (f *choiceFlag) String() string { return f.value }

// Type implements pflag.Value.
func (f *choiceFlag) Type() string { return strings.Join(f.choices, "|") }

// Set implements pflag.Value.
func (f *choiceFlag) Set(v string) error {
	if n, ok := bytesize.Parse(v); ok {
		v = strconv.FormatUint(n, 10) // choices that are sizes may be written with a unit: 4K is 4096
	}
	if !slices.Contains(f.choices, v) {
		return fmt.Errorf("must be one of %s", strings.Join(f.choices, ", "))
	}
	f.value = v
	return nil
}

// bind adds the flag to a command.
func (f *choiceFlag) bind(c *cobra.Command, name, usage string) {
	c.Flags().Var(f, name, usage)
	completeWords(c, name, f.choices...)
}

// cryptoFlags are the flags for the crypto attributes of a key.
type cryptoFlags struct {
	crypto, order, unit choiceFlag
	tweak               parsed[xts.Tweak]
	dek, kek            fileFlag
	fits                func(key []byte) error // whether a key, which is not wrapped, is that of the volume; nil: any is
}

func (f *cryptoFlags) bind(c *cobra.Command) {
	f.bindUnits(c, sizeWords(sig.KeyBlockSizes()))
}

// sizeWords returns sizes as the words of a choice.
func sizeWords(sizes []int) (words []string) {
	for _, n := range sizes {
		words = append(words, strconv.Itoa(n))
	}
	return words
}

// bindUnits is bind with other sizes of data units than those of keys.
func (f *cryptoFlags) bindUnits(c *cobra.Command, units []string) {
	f.crypto.choices, f.order.choices = []string{"encrypt", "decrypt"}, []string{"before", "after"}
	f.unit.choices = units
	f.crypto.bind(c, "crypto", "operation from memory to the wire; from the wire to memory it is reversed")
	f.order.bind(c, "order", "whether signatures come before the crypto or after it, from memory to the wire; needed with signatures, and without them either one")
	f.unit.bind(c, "unit", "bytes of a data unit (default: a block, with its field if that is encrypted too)")
	bindTweak(c, &f.tweak)
	c.Flags().Var(&f.dek, "dek", "data encryption key: 32 or 64 bytes, or their hexadecimal digits; with --kek, wrapped")
	f.kek.bindKEK(c)
}

// attributes returns the crypto attributes, or nil if there are none, for a key with the signature s.
// The caller closes the DEK, which without crypto is nil: closing that does nothing.
func (f *cryptoFlags) attributes(c *cobra.Command, s *mkey.Signature) (*mkey.Crypto, *dek.DEK, error) {
	if f.crypto.value == "" {
		for _, name := range []string{"order", "unit", "tweak", "dek", "kek"} {
			if c.Flags().Changed(name) {
				return nil, nil, usage(c, fmt.Errorf("--%s without --crypto: add --crypto encrypt or --crypto decrypt", name))
			}
		}
		return nil, nil, nil
	}
	if err := f.check(s); err != nil {
		return nil, nil, usage(c, err)
	}
	a := &mkey.Crypto{
		EncryptOnTX:  f.crypto.value == "encrypt",
		InitialTweak: f.tweak.value,
	}
	if f.order.value == "before" {
		a.Order = mkey.SignatureBeforeCrypto
	}
	var err error
	if a.DataUnitSize, err = f.dataUnit(s, a); err != nil {
		return nil, nil, usage(c, err)
	}
	d, keytag, err := readDEK(f.dek, f.kek, f.fits)
	if err != nil {
		return nil, nil, err
	}
	a.DEK, a.KeyTag = d, keytag
	return a, d, nil
}

// check returns an error for missing flags, and for combinations that mkey.Crypto does not
// allow. Its errors name the flags.
func (f *cryptoFlags) check(s *mkey.Signature) error {
	switch {
	case f.dek == "":
		return fmt.Errorf("--crypto %s needs a key: --dek FILE ('softmkey dek generate' makes one)", f.crypto.value)
	case s == nil:
		return nil
	case f.order.value == "":
		return errors.New("--order is missing: from memory to the wire, do the signatures come before the crypto or after it?")
	case f.crypto.value == "encrypt" && f.order.value == "after" && s.Memory != nil && s.Wire != nil:
		return errors.New("--crypto encrypt --order after with --mem and --wire: a key that encrypts first has a signature in one domain only; use --order before, or --mem none")
	case f.crypto.value == "decrypt" && f.order.value == "before" && s.Memory != nil && s.Wire != nil:
		return errors.New("--crypto decrypt --order before with --mem and --wire: a key that decrypts last has a signature in one domain only; use --order after, or --wire none")
	}
	return nil
}

// dataUnit returns the size of a data unit: that of --unit or, without it, the length of a
// block in the encrypted stream.
func (f *cryptoFlags) dataUnit(s *mkey.Signature, c *mkey.Crypto) (int, error) {
	if f.unit.value != "" {
		return strconv.Atoi(f.unit.value)
	}
	n := sig.DefaultBlockSize
	if s != nil {
		units, other := geometry.Of[int64](s.Memory), geometry.Of[int64](s.Wire)
		if !c.OnMemory(s) {
			units, other = other, units
		}
		n = int(geometry.DefaultUnit(units, other))
	}
	if !slices.Contains(sig.KeyBlockSizes(), n) {
		return 0, fmt.Errorf("--unit is missing: the %d bytes of a block and its field cannot be a data unit; choose %s", n, strings.Join(f.unit.choices, ", "))
	}
	return n, nil
}
