package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/sectors"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
)

// sigFlag is a flag whose value is a signature, SIG.
type sigFlag struct {
	format sig.Format
	given  bool
	ofKey  bool // only the block sizes of memory keys are allowed

	sectors   *sectors.Format // of a format of none with bytes beside the blocks, or nil
	unchecked bool            // such a format is allowed
}

// String implements pflag.Value.
func (s *sigFlag) String() string {
	if !s.given {
		return ""
	}
	if s.sectors != nil {
		return s.sectors.String()
	}
	return s.format.String()
}

// Type implements pflag.Value: it is the name of the value in help texts.
func (s *sigFlag) Type() string { return "SIG" }

// Set implements pflag.Value.
func (s *sigFlag) Set(v string) error {
	if name, rest, _ := strings.Cut(v, ":"); strings.Contains(rest, "+") {
		return s.setSectors(name, rest)
	}
	f, err := sig.ParseFormat(v)
	if err != nil {
		if _, small := sig.ParseFormat(strings.ToLower(v)); small == nil {
			return fmt.Errorf("signatures are in small letters: %s", strings.ToLower(v))
		}
	}
	var refused *operr.Error
	if errors.As(err, &refused) {
		return errors.New(strings.TrimPrefix(refused.Reason, strconv.Quote(v)+": "))
	} else if err != nil {
		return err
	}
	if s.ofKey && f.Type != sig.NoSignature && !f.Type.OfKey() {
		return fmt.Errorf("%v: an adapter's memory key has only t10dif, crc32, crc32c and crc64; protect, verify, strip, convert and nbd have the others", f.Type)
	}
	size := f.Block()
	if sizes := sig.KeyBlockSizes(); s.ofKey && f.Type != sig.NoSignature && !slices.Contains(sizes, size) {
		return fmt.Errorf("block size %d: must be one of %v", size, sizes)
	}
	s.format, s.given, s.sectors = f, true, nil
	return nil
}

// setSectors sets a format with bytes beside the blocks that nobody checks.
func (s *sigFlag) setSectors(name, rest string) error {
	switch {
	case name != sig.NoSignature.String():
		return fmt.Errorf("bytes beside a block after a plus sign are those that nobody checks: %v:%s; metadata of the nvme types is meta=N", sig.NoSignature, rest)
	case !s.unchecked:
		return errors.New("only protect, strip and convert have bytes beside a block that nobody checks")
	}
	f, err := sectors.Parse(rest)
	if err != nil {
		return err
	}
	s.format, s.given, s.sectors = sig.Format{BlockSize: f.Block}, true, &f
	return nil
}

// domain returns the format as the attribute of a key's domain.
func (s *sigFlag) domain() *sig.Format {
	if s.format.Type == sig.NoSignature {
		return nil
	}
	return &s.format
}

// need returns an error if the flag, whose name is given, is missing or none.
func (s *sigFlag) need(c *cobra.Command, name string) error {
	switch {
	case !s.given:
		return usage(c, fmt.Errorf("--%s is missing: for example --%s t10dif:512, see 'softmkey help sig'", name, name))
	case s.format.Type == sig.NoSignature && s.sectors == nil:
		return usage(c, fmt.Errorf("--%s none: there is nothing to do without a signature", name))
	}
	return nil
}

// bind adds the flag to a command.
func (s *sigFlag) bind(c *cobra.Command, name, usage string) {
	c.Flags().Var(s, name, usage)
	must(c.RegisterFlagCompletionFunc(name, completeSig))
}

// bindUnchecked is bind for a command that takes formats without a check, too.
func (s *sigFlag) bindUnchecked(c *cobra.Command, name, usage string) {
	s.unchecked = true
	c.Flags().Var(s, name, usage)
	must(c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		choices, directive := completeSig(c, args, typed)
		if strings.HasPrefix(typed, sig.NoSignature.String()) {
			choices = append(choices, "none:512+8", "none:512+16", "none:4096+8", "none:4096+64", "none:4096+128")
		}
		return choices, directive
	}))
}

func completeSig(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var choices []string
	for t := sig.NoSignature; t <= sig.NVMe64; t++ {
		choices = append(choices, t.String())
		for _, size := range sig.KeyBlockSizes() {
			if t != sig.NoSignature && strings.HasPrefix(typed, t.String()) {
				choices = append(choices, fmt.Sprintf("%v:%d", t, size))
			}
		}
	}
	return choices, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// masks are flags whose value is a mask of the bytes of a field.
var masks = kind[sig.Mask]{"MASK", parseMask, func(m sig.Mask) string { return fmt.Sprintf("0x%02X", m) }}

func parseMask(s string) (sig.Mask, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	n, err := strconv.ParseUint(digits, 16, 8)
	if err != nil || len(digits) > 2 {
		return 0, errors.New("must be a byte in hexadecimal, with a bit for each byte of a field, such as 0xC0")
	}
	return sig.Mask(n), nil
}

// signatureFlags are the flags for the signature attributes of a key.
type signatureFlags struct {
	mem, wire   sigFlag
	check, copy parsed[sig.Mask]
}

func (s *signatureFlags) bind(c *cobra.Command) {
	s.mem.ofKey, s.wire.ofKey = true, true
	s.mem.bind(c, "mem", "signature of the memory domain (default none)")
	s.wire.bind(c, "wire", "signature of the wire domain (default none)")
	masks.bind(c, &s.check, "check-mask", "bytes of the input's field that are checked (default 0xFF)")
	masks.bind(c, &s.copy, "copy-mask", "bytes of the output's field that are copied from the input's; needs signatures of one type and block size in both domains (default: the parts that both have in common)")
}

// attributes returns the signature attributes, or nil if there are none.
func (s *signatureFlags) attributes(c *cobra.Command) (*mkey.Signature, error) {
	a := &mkey.Signature{Memory: s.mem.domain(), Wire: s.wire.domain()}
	if a.Memory == nil && a.Wire == nil {
		if s.check.given || s.copy.given {
			return nil, usage(c, errors.New("a mask needs a signature: give --mem or --wire"))
		}
		return nil, nil
	}
	if s.check.given {
		a.CheckMask = &s.check.value
	}
	if s.copy.given {
		if a.Memory == nil || a.Wire == nil {
			return nil, usage(c, errors.New("--copy-mask needs a signature in both domains: give --mem and --wire"))
		}
		a.CopyMask = &s.copy.value
	}
	return a, nil
}

// must panics on errors that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
