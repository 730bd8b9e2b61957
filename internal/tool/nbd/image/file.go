package image

import (
	"cmp"
	"os"

	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// File is the part of an *os.File from Offset on, as a store.
type File struct {
	*os.File
	Offset int64
}

// ReadAt implements io.ReaderAt.
func (f File) ReadAt(p []byte, off int64) (int, error) { return f.File.ReadAt(p, f.Offset+off) }

// WriteAt implements io.WriterAt.
func (f File) WriteAt(p []byte, off int64) (int, error) { return f.File.WriteAt(p, f.Offset+off) }

// separate is a store whose blocks are in one file and whose fields are in another.
type separate struct {
	mkeyio.Store
	data, fields File
}

// Separate returns the store of an image whose blocks are in data and whose fields are in fields. Its size is
// that of the stream in which the fields follow their blocks.
func Separate(f sig.Format, data, fields File) Store {
	return separate{mkeyio.SeparateStore(f, data, fields), data, fields}
}

// Sync implements Store. It flushes both files, also after an error.
func (s separate) Sync() error { return cmp.Or(s.data.Sync(), s.fields.Sync()) }

// Discard implements Store: an image with fields keeps its bytes.
func (s separate) Discard(off, n int64) error { return nil }
