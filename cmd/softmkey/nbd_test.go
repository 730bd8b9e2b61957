package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/nbd/image"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// lossy is an image whose first sync fails, and whose later ones succeed, as a kernel's do.
type lossy struct {
	image.File
	failed bool
}

func (f *lossy) Sync() error {
	if f.failed {
		return nil
	}
	f.failed = true
	return &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.EIO}
}

// TestNBDFlushFails: the error of a flush is printed once, and is the exit status.
func TestNBDFlushFails(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		file, err := os.Create(filepath.Join(t.TempDir(), "img"))
		fatal.If(t, err)
		var said, out bytes.Buffer
		d := &nbdDevice{files: []*os.File{file}, report: &reporter{command: "nbd", input: file.Name(), json: asJSON, errors: &said}}
		d.Image, err = image.New(&lossy{File: image.File{File: file}}, image.Options{
			Job: mkeyio.Protect(sig.Format{Type: sig.T10DIF}), Bad: d.bad, Kept: d.kept, Failed: d.failed,
		})
		fatal.If(t, err)
		for range 2 {
			if err := d.Flush(); err == nil {
				t.Error("a flush succeeded")
			}
		}
		if code := status(d.close()); code != exitFailed {
			t.Errorf("exit status %d", code)
		}
		d.summary(&out, false)
		want := "softmkey: " + file.Name() + ": flush: input/output error: data that clients have written may be lost, and all further flushes fail\n" +
			"softmkey: " + file.Name() + ": requests that failed because of errors of the image: 2\n"
		if asJSON {
			want = `{"error":"input/output error","file":"` + file.Name() + `","offset":0,"operation":"flush"}` + "\n"
			if !strings.Contains(out.String(), `"requests_failed":2`) {
				t.Errorf("the outcome: %s", &out)
			}
		}
		if said.String() != want {
			t.Errorf("said %q", &said)
		}
	}
}
