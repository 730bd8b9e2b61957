package image

import "os"

// File is the part of an *os.File from Offset on, as a store.
type File struct {
	*os.File
	Offset int64
}

// ReadAt implements io.ReaderAt.
func (f File) ReadAt(p []byte, off int64) (int, error) { return f.File.ReadAt(p, f.Offset+off) }

// WriteAt implements io.WriterAt.
func (f File) WriteAt(p []byte, off int64) (int, error) { return f.File.WriteAt(p, f.Offset+off) }
