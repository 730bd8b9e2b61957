// Package fullio reads and writes whole buffers through interfaces whose implementations may
// break their contracts: a count that is too small without an error, or larger than the
// buffer, is an error and not a panic or lost data.
package fullio

import (
	"fmt"
	"io"
)

// maxEmptyReads is how many times in a row a Reader may return no byte and no error.
const maxEmptyReads = 100

// Read fills p. It returns io.EOF with the number of bytes read if the stream ends before:
// unlike io.ReadFull, so that an io.ErrUnexpectedEOF is always one of the Reader, for example
// of a decompressor. An error that comes with the last bytes of p is returned with them: the Reader need not
// return it again. An error that wraps io.EOF is no end of the stream (package io). A Reader that returns (0, nil) again and again gives io.ErrNoProgress.
func Read(r io.Reader, p []byte) (n int, err error) {
	for empty := 0; n < len(p) && err == nil; {
		var m int
		m, err = r.Read(p[n:])
		if wrong := within("Read", m, len(p)-n); wrong != nil {
			return n, wrong
		}
		n += m
		if empty++; m > 0 {
			empty = 0
		}
		if empty == maxEmptyReads && err == nil {
			return n, io.ErrNoProgress
		}
	}
	if n == len(p) && err == io.EOF {
		err = nil
	}
	return n, err
}

// ReadAt fills p from off. A source that ends before gives io.ErrUnexpectedEOF.
func ReadAt(r io.ReaderAt, p []byte, off int64) (int, error) {
	n, err := r.ReadAt(p, off)
	if wrong := within("ReadAt", n, len(p)); wrong != nil {
		return 0, wrong
	}
	switch {
	case n == len(p):
		return n, nil
	case err == nil, err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write writes all of p.
func Write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	return written("Write", n, len(p), err)
}

// WriteAt writes all of p at off.
func WriteAt(w io.WriterAt, p []byte, off int64) error {
	n, err := w.WriteAt(p, off)
	return written("WriteAt", n, len(p), err)
}

// written returns the error of a write of size bytes that returned n and err.
func written(method string, n, size int, err error) error {
	if err != nil {
		return err
	}
	if wrong := within(method, n, size); wrong != nil {
		return wrong
	}
	if n < size {
		return io.ErrShortWrite
	}
	return nil
}

// within returns an error if a method returned an impossible count.
func within(method string, n, size int) error {
	if n < 0 || n > size {
		return fmt.Errorf("%s returned %d for a buffer of %d bytes", method, n, size)
	}
	return nil
}
