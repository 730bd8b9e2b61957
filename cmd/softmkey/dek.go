package main

import (
	"crypto/subtle"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
)

func newDEK() *cobra.Command {
	c := &cobra.Command{
		Use:     "dek",
		GroupID: groupKeys,
		Short:   "Make, wrap and unwrap key files",
		Long: `A data encryption key (DEK) consists of two AES keys for AES-XTS: 32 bytes for AES-128,
64 bytes for AES-256. A key file holds them as raw bytes or as hexadecimal digits.

A wrapped DEK is encrypted under a key encryption key (KEK) of 16 or 32 bytes by AES key
wrap (RFC 3394), which makes it 8 bytes longer. Tx and rx accept it with --kek.

Key files are for their owner only. A secret key in a file that other users can read
draws a warning.`,
		Example: `  softmkey dek generate --bits 256 disk.key
  softmkey dek wrap --kek master.key disk.key disk.wrapped
  softmkey dek unwrap --kek master.key disk.wrapped disk.key`,
		Args: cobra.ArbitraryArgs,
		RunE: needsCommand,
	}
	c.AddCommand(newDEKGenerate(), newDEKWrap(), newDEKUnwrap())
	return c
}

// hexFlag is the flag --hex of the commands that write keys.
type hexFlag bool

func (h *hexFlag) bind(c *cobra.Command) {
	c.Flags().BoolVar((*bool)(h), "hex", false, "write hexadecimal digits")
}

// write writes a key to the file OUT and clears it in memory.
func (h hexFlag) write(name string, key []byte) error {
	defer clear(key)
	if h {
		digits := append(hex.AppendEncode(nil, key), '\n')
		defer clear(digits)
		return writeKeyFile(name, digits)
	}
	return writeKeyFile(name, key)
}

func newDEKGenerate() *cobra.Command {
	var digits hexFlag
	bits := choiceFlag{choices: []string{"128", "256"}, value: "256"}
	c := &cobra.Command{
		Use:   "generate [--bits 128|256] [flags] OUT",
		Short: "Make a random key",
		Long: `Generate writes a random data encryption key to OUT. OUT must not exist; only its owner
may read it.`,
		Example: `  softmkey dek generate disk.key
  softmkey dek generate --bits 128 --hex disk.key`,
		Args: operands("OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			size := dek.Size256
			if bits.value == "128" {
				size = dek.Size128
			}
			return digits.write(args[0], dek.Generate(size, false))
		},
	}
	bits.bind(c, "bits", "size of each of the two AES keys")
	digits.bind(c)
	return c
}

func newDEKWrap() *cobra.Command {
	var digits hexFlag
	var kek fileFlag
	c := &cobra.Command{
		Use:   "wrap --kek FILE [flags] IN OUT",
		Short: "Wrap a key under another (RFC 3394)",
		Long: `Wrap reads a data encryption key from IN, wraps it under a KEK and writes the result,
which is 8 bytes longer, to OUT, which must not exist.`,
		Example: `  (umask 077; head -c 32 /dev/urandom > master.key)
  softmkey dek wrap --kek master.key disk.key disk.wrapped`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := needKEK(c, kek); err != nil {
				return err
			}
			key, err := readKeyFile(fileFlag(args[0]), true, dek.ParseKey)
			if err != nil {
				return err
			}
			defer clear(key)
			secret, err := readKeyFile(kek, true, dek.ParseKEK)
			if err != nil {
				return err
			}
			defer clear(secret)
			if subtle.ConstantTimeCompare(secret, key) == 1 {
				return fmt.Errorf("%s and --kek %s hold one key: a key is not wrapped under itself", inputName(args[0]), kek)
			}
			wrapped, err := dek.Wrap(secret, key)
			if err != nil {
				return reason(err)
			}
			return digits.write(args[1], wrapped)
		},
	}
	kek.bindKEK(c)
	digits.bind(c)
	return c
}

func newDEKUnwrap() *cobra.Command {
	var digits hexFlag
	var kek fileFlag
	c := &cobra.Command{
		Use:   "unwrap --kek FILE [flags] IN OUT",
		Short: "Unwrap a wrapped key",
		Long: `Unwrap reads a wrapped data encryption key from IN and writes the plain key to OUT,
which must not exist; only its owner may read it. Unwrap detects a wrong KEK and a
wrapped key that was changed.`,
		Example: `  softmkey dek unwrap --kek master.key disk.wrapped disk.key`,
		Args:    operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := needKEK(c, kek); err != nil {
				return err
			}
			wrapped, secret, err := readWrapped(fileFlag(args[0]), kek)
			if err != nil {
				return err
			}
			defer clear(secret)
			key, err := dek.Unwrap(secret, wrapped)
			if err != nil {
				return fmt.Errorf("%s: %w", inputName(args[0]), reason(err))
			}
			return digits.write(args[1], key)
		},
	}
	kek.bindKEK(c)
	digits.bind(c)
	return c
}
