package outfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestPipes writes in place to a named pipe: the end of its reader is an error, and the context ends
// the wait for a reader that comes or reads.
func TestPipes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	fatal.If(t, syscall.Mkfifo(name, 0o600))
	boom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(t.Context())
	opened := make(chan *os.File)
	go func() { // ends with the writer's open
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
		}
		opened <- f
	}()
	f, err := InPlace(name, Options{Context: ctx})
	fatal.If(t, err)
	defer f.Close()
	reader := <-opened
	if _, err := f.Write([]byte("line\n")); err != nil {
		t.Error(err)
	}
	big := make([]byte, 1<<20)
	cancel(boom)
	if _, err := f.Write(big); !errors.Is(err, boom) {
		t.Errorf("a reader that does not read: %v", err)
	}
	reader.Close()

	if _, err := InPlace(name, Options{Context: ctx}); !errors.Is(err, boom) {
		t.Errorf("no reader: %v", err)
	}
	if _, err := Create(name, Options{Context: ctx}); !errors.Is(err, boom) {
		t.Errorf("no reader: %v", err)
	}
	go func() {
		f, _ := os.Open(name)
		opened <- f
	}()
	if f, err = InPlace(name, Options{}); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	(<-opened).Close()
	if _, err := f.Write(big); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a reader that has ended: %v", err)
	}
}

// TestInPlace: a file that is written in place is locked and emptied.
func TestInPlace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	fatal.If(t, os.WriteFile(name, []byte("old content"), 0o600))
	f, err := InPlace(name, Options{})
	fatal.If(t, err)
	defer f.Close()
	if _, err := f.Write([]byte("new")); err != nil || content(t, name) != "new" {
		t.Errorf("%v, %q", err, content(t, name))
	}
}
