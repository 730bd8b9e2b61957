package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/bytesize"
	"github.com/softmkey/softmkey/xts"
)

// kind is a kind of flags whose values are not words: how help texts name a value, how it is read, and how it is written
// if that is not the text as it was given.
type kind[T any] struct {
	name  string
	parse func(text string) (T, error)
	write func(T) string
}

// bind adds a flag of the kind to a command.
func (k *kind[T]) bind(c *cobra.Command, f *parsed[T], name, usage string) {
	f.kind = k
	c.Flags().Var(f, name, usage)
}

// parsed is a flag of a kind. given is whether it has a value.
type parsed[T any] struct {
	value T
	given bool
	text  string // as it was given
	kind  *kind[T]
}

// String implements pflag.Value.
func (f *parsed[T]) String() string {
	if f.given && f.kind.write != nil {
		return f.kind.write(f.value)
	}
	return f.text
}

// Type implements pflag.Value.
func (f *parsed[T]) Type() string { return f.kind.name }

// Set implements pflag.Value.
func (f *parsed[T]) Set(text string) error {
	v, err := f.kind.parse(text)
	if err != nil {
		return err
	}
	f.set(v)
	f.text = text
	return nil
}

// set gives the flag a value that is not from the command line.
func (f *parsed[T]) set(v T) { f.value, f.given = v, true }

// or returns the value, or another one if the flag was not given.
func (f *parsed[T]) or(v T) T {
	if f.given {
		return f.value
	}
	return v
}

// The kinds of flags for numbers: offsets and sizes in bytes, and the tweak of a data unit, which has up to 128 bits.
var (
	offsets = kind[int64]{"OFFSET", func(s string) (int64, error) { return parseBytes(s, math.MaxInt64) }, nil}
	sizes   = kind[int64]{"SIZE", func(s string) (int64, error) { return parseBytes(s, math.MaxInt32) }, func(n int64) string { return fmt.Sprint(n) }}
	tweaks  = kind[xts.Tweak]{"T", parseTweak, xts.Tweak.String}
)

// parseBytes reads a number of bytes, which is at most most.
func parseBytes(s string, most uint64) (int64, error) {
	n, ok := bytesize.Parse(s)
	if !ok || n > most {
		return 0, errors.New("must be " + bytesize.Syntax)
	}
	return int64(n), nil
}

// bindTweak adds --tweak, which is 0 if it is not given.
func bindTweak(c *cobra.Command, f *parsed[xts.Tweak]) {
	f.set(xts.Tweak{})
	tweaks.bind(c, f, "tweak", "tweak of the first data unit; the others count up from it")
}

func parseTweak(s string) (xts.Tweak, error) {
	t, err := xts.ParseTweak(s)
	if err != nil {
		err = errors.New("must be a number of at most 128 bits, in decimal or in hexadecimal after 0x")
	}
	return t, err
}
