package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// openInput opens the file of that name for reading; "-" is standard input.
func openInput(name string) (*os.File, error) {
	if name == "-" {
		return os.Stdin, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &os.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// inputName returns what messages call an input.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// output is a file that appears under its name when it is complete, in the place
// of one that was there. What is not a regular file is written where it is.
type output struct {
	*os.File
	name string // where the file goes; empty if it is there already
}

// createOutput opens an output for what is made of the input in. The same file as
// the input is refused. Like cp, it follows symbolic links, gives a new file the
// input's permissions under the umask, and keeps those of a file that it replaces.
func createOutput(name string, in *os.File) (*output, error) {
	if name == "-" {
		return &output{File: os.Stdout}, nil
	}
	from, err := in.Stat()
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o666)
	if from.Mode().IsRegular() {
		mode = from.Mode().Perm()
	}
	to, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if target, err := os.Readlink(name); err == nil {
			return nil, fmt.Errorf("%s is a symbolic link to %s, which does not exist", name, target)
		}
		return createTemporary(name, mode)
	case err != nil:
		return nil, err
	case to.IsDir():
		return nil, fmt.Errorf("%s is a directory: name the file to write", name)
	case os.SameFile(from, to) && to.Mode().IsRegular():
		return nil, fmt.Errorf("%s and %s are the same file", in.Name(), name)
	}
	// A file that cannot be written to is not replaced either.
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if !to.Mode().IsRegular() {
		return &output{File: f}, nil
	}
	f.Close()
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return nil, err
	}
	out, err := createTemporary(name, to.Mode().Perm())
	if err != nil {
		return nil, err
	}
	keepOwner(out.File, to)
	if err := out.Chmod(to.Mode().Perm()); err != nil {
		out.abandon()
		return nil, err
	}
	return out, nil
}

// createTemporary opens a new file beside the one of that name, whose mode is
// subject to the umask.
func createTemporary(name string, mode os.FileMode) (*output, error) {
	dir, base := filepath.Split(name)
	base = base[:min(len(base), 200)] // a file system's names have 255 bytes, often
	for {
		var random [6]byte
		rand.Read(random[:])
		temporary := filepath.Join(dir, "."+base+".softmkey-"+hex.EncodeToString(random[:]))
		f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			// The temporary name says nothing to the user.
			var e *os.PathError
			if errors.As(err, &e) {
				e.Op, e.Path = "create", name
			}
			return nil, err
		}
		return &output{File: f, name: name}, nil
	}
}

// commit puts the file in its place.
func (o *output) commit() error {
	if o.File == os.Stdout {
		return nil
	}
	temporary := o.Name()
	err := o.Close()
	if o.name == "" {
		return err
	}
	if err == nil {
		err = os.Rename(temporary, o.name)
	}
	if err != nil {
		os.Remove(temporary)
	}
	return err
}

// abandon removes what has been written.
func (o *output) abandon() {
	if o.File == os.Stdout {
		return
	}
	o.Close()
	if o.name != "" {
		os.Remove(o.Name())
	}
}
