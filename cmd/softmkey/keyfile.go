package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/operr"
)

// maxKeyFile is larger than any key file, in bytes. The limit exists because a wrong name may
// be that of a large file.
const maxKeyFile = 4096

// readKeyFile reads a file and returns the key that parse finds in it. If the key is secret
// and other users can read the file, it prints a warning.
func readKeyFile(name fileFlag, secret bool, parse func([]byte) ([]byte, error)) ([]byte, error) {
	in, err := openInput(string(name))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(waiting{in}, maxKeyFile+1))
	defer clear(b)
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxKeyFile:
		return nil, fmt.Errorf("%s: more than %d bytes: that is no key file", inputName(string(name)), maxKeyFile)
	}
	key, err := parse(b)
	if err != nil && passphrase(b) {
		return nil, fmt.Errorf("%s: %w: a passphrase is no key ('cryptsetup luksDump --dump-volume-key' shows that of a volume)", inputName(string(name)), reason(err))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(string(name)), reason(err))
	}
	if secret {
		warnReadable(in)
	}
	return key, nil
}

// passphrase reports whether the content of a file is text, and no hexadecimal digits.
func passphrase(b []byte) bool {
	text := strings.TrimSpace(string(b))
	return utf8.ValidString(text) && strings.Trim(text, "0123456789abcdefABCDEF \t\r\n") != "" &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) })
}

// warnReadable prints a warning if other users can read a file.
func warnReadable(f *os.File) {
	const others = 0o044
	info, err := f.Stat()
	if err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
		message(os.Stderr, "warning: %s: other users can read this key (mode %04o): chmod 600 %[1]s", f.Name(), info.Mode().Perm())
	}
}

// reason returns an error without the name of the operation, which the command line
// already names.
func reason(err error) error {
	var refused *operr.Error
	if errors.As(err, &refused) && (refused.Err == nil || refused.Err == io.ErrUnexpectedEOF) { // the reason says where a file ends
		return errors.New(refused.Reason)
	}
	return err
}

// readDEK reads a data encryption key, which is wrapped if kek names a file. fits, if not nil, refuses
// plain keys that are not the right one.
func readDEK(name, kek fileFlag, fits func(key []byte) error) (d *dek.DEK, keytag [dek.KeyTagSize]byte, err error) {
	if kek != "" {
		return readWrappedDEK(name, kek)
	}
	key, err := readKeyFile(name, true, dek.ParseKey)
	if err != nil {
		return nil, keytag, err
	}
	defer clear(key)
	if fits != nil {
		if err := fits(key); err != nil {
			return nil, keytag, err
		}
	}
	d, err = dek.New(key)
	return d, keytag, err // a plain key file has no keytag
}

// wrapOverhead is how many bytes longer a wrapped key is (RFC 3394).
const wrapOverhead = 8

// readWrappedDEK reads a wrapped data encryption key, which is unwrapped in locked
// memory.
func readWrappedDEK(name, kek fileFlag) (d *dek.DEK, keytag [dek.KeyTagSize]byte, err error) {
	wrapped, secret, err := readWrapped(name, kek)
	if err != nil {
		return nil, keytag, err
	}
	defer clear(secret)
	hasKeyTag := (len(wrapped)-wrapOverhead)%dek.Size128.Bytes() != 0
	if d, err = dek.NewWrapped(secret, wrapped); err == nil && hasKeyTag {
		keytag, err = d.KeyTag() // a memory key must present the keytag to use the DEK
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", inputName(string(name)), reason(err))
	}
	return d, keytag, err
}

// readWrapped reads a wrapped key, and the key under which it is wrapped.
func readWrapped(name, kek fileFlag) (wrapped, secret []byte, err error) {
	if wrapped, err = readKeyFile(name, false, dek.ParseWrapped); err != nil {
		return nil, nil, err
	}
	secret, err = readKeyFile(kek, true, dek.ParseKEK)
	return wrapped, secret, err
}

// writeKeyFile writes a key to a new file that only its owner may read. An existing file
// is never replaced: all data under an overwritten key is lost.
func writeKeyFile(name string, key []byte) error {
	err := writeOutput(name, outfile.Options{Mode: 0o600, KeepExisting: true}, key)
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
