package image

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestDiscard makes a hole in a file. It reads as zeros if the file system has holes, and the file
// keeps its length and its other bytes.
func TestDiscard(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	fatal.If(t, err)
	defer f.Close()
	data := bytes.Repeat([]byte("content."), 32<<10)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	fatal.If(t, (File{f, 4096}).Discard(4096, 64<<10))
	got, err := os.ReadFile(f.Name())
	fatal.If(t, err)
	if bytes.Equal(got, data) {
		t.Skip("the file system has no holes")
	}
	clear(data[8192:][:64<<10])
	if !bytes.Equal(got, data) {
		t.Error("other bytes have changed")
	}
}
