package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/operr"
)

// maxKeyFile is more than any key file has, so that a wrong name does not read a
// whole disk.
const maxKeyFile = 4096

// readKeyFile reads a file and returns the key that parse finds in it. A secret key
// in a file that other users can read draws a warning.
func readKeyFile(name fileFlag, secret bool, parse func([]byte) ([]byte, error)) ([]byte, error) {
	in, err := openInput(string(name))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if secret {
		warnReadable(in)
	}
	b, err := io.ReadAll(io.LimitReader(in, maxKeyFile+1))
	defer clear(b)
	if err != nil {
		return nil, err
	}
	key, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(string(name)), reason(err))
	}
	return key, nil
}

// warnReadable prints a warning if other users can read a file.
func warnReadable(f *os.File) {
	const others = 0o044
	info, err := f.Stat()
	if err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
		fmt.Fprintf(os.Stderr, "softmkey: warning: %s: other users can read this key (mode %04o): chmod 600 %[1]s\n", f.Name(), info.Mode().Perm())
	}
}

// reason returns an error without the name of the operation, where the command
// line says what was attempted.
func reason(err error) error {
	var refused *operr.Error
	if errors.As(err, &refused) && refused.Err == nil {
		return errors.New(refused.Reason)
	}
	return err
}

// readDEK reads a data encryption key, which is wrapped if kek names a file.
func readDEK(name, kek fileFlag) (d *dek.DEK, keytag [dek.KeyTagSize]byte, err error) {
	var key []byte
	if kek == "" {
		key, err = readKeyFile(name, true, dek.ParseKey)
	} else {
		key, err = readWrapped(name, kek)
	}
	defer clear(key)
	if err != nil {
		return nil, keytag, err
	}
	a := dek.Attr{Key: key}
	if len(key) >= dek.Size256.Bytes() {
		a.Size = dek.Size256
	}
	if n := a.Size.Bytes(); len(key) > n {
		a.HasKeyTag = true
		copy(keytag[:], key[n:])
	}
	d, err = dek.New(a)
	return d, keytag, err
}

// readWrapped reads a wrapped key and unwraps it.
func readWrapped(name, kek fileFlag) ([]byte, error) {
	wrapped, err := readKeyFile(name, false, dek.ParseWrapped)
	if err != nil {
		return nil, err
	}
	secret, err := readKeyFile(kek, true, dek.ParseKEK)
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	key, err := dek.Unwrap(secret, wrapped)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(string(name)), reason(err))
	}
	return key, nil
}

// writeKeyFile writes a key to a file that nobody else may read and that must not
// exist: a key that is overwritten is lost with all data under it.
func writeKeyFile(name string, key []byte) error {
	if name == "-" {
		_, err := os.Stdout.Write(key)
		return err
	}
	out, err := outfile.Create(name, outfile.Options{Mode: 0o600, KeepExisting: true})
	if err == nil {
		if _, err = out.Write(key); err != nil {
			out.Abandon()
			return out.Explain(err)
		}
		err = out.Commit()
	}
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: a key file is never overwritten", name)
	}
	return err
}

// fileFlag is the name of a file.
type fileFlag string

// String implements pflag.Value.
func (f *fileFlag) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *fileFlag) Type() string { return "FILE" }

// Set implements pflag.Value.
func (f *fileFlag) Set(v string) error {
	*f = fileFlag(v)
	return nil
}

func (f *fileFlag) bindKEK(c *cobra.Command) {
	c.Flags().Var(f, "kek", "key under which the data encryption key is wrapped: 16 or 32 bytes, or their hexadecimal digits")
}

func needKEK(c *cobra.Command, kek fileFlag) error {
	if kek == "" {
		return usage(c, errors.New("--kek FILE is missing: the key under which keys are wrapped"))
	}
	return nil
}
