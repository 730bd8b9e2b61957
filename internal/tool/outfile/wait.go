package outfile

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/softmkey/softmkey/internal/tool/filelock"
)

// patience is how long a write to a pipe may go on after the context has ended.
const patience = time.Second

// Open opens a file as os.OpenFile does. If the context ends before, as while a named pipe has no
// program at its other end, it returns the context's cause; the goroutine that opens the
// file ends with the system call, or with the process.
func Open(ctx context.Context, name string, flag int, mode os.FileMode) (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := os.OpenFile(name, flag, mode)
		opened <- result{f, err}
	}()
	select {
	case r := <-opened:
		return r.f, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Write writes to the output. If the output is no regular file and the context of its Options ends,
// Write gives the reader a second more, and then returns the context's cause. p must not be
// changed after such an error: the system call may go on.
func (o *File) Write(p []byte) (int, error) {
	if err := o.empty(); err != nil {
		return 0, err
	}
	if o.ctx == nil || o.target != "" {
		return o.File.Write(p)
	}
	if o.blocked != nil {
		return 0, o.blocked
	}
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	go func() {
		n, err := o.File.Write(p)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-o.ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r := <-written:
		return r.n, r.err
	case <-late.C:
		o.blocked = context.Cause(o.ctx)
		return 0, o.blocked
	}
}

// Direct reports whether the output is written in place, as a pipe or a device is.
func (o *File) Direct() bool { return o.target == "" }

// InPlace opens a file that is written in place, for output that others read while it grows. An
// existing file is locked, and emptied by the first Write or by Close, so that Abandon leaves it as it was.
func InPlace(name string, o Options) (*File, error) {
	f, err := Open(cmp.Or(o.Context, context.Background()), name, os.O_WRONLY|os.O_CREATE, cmp.Or(o.Mode, 0o666))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if std, err := os.Stdout.Stat(); err == nil && isStdout(std, info) {
			f.Close()
			return lockedStdout()
		}
		err = filelock.Exclusive(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	file := &File{File: f, risk: true, ctx: o.Context}
	file.full.Store(info.Mode().IsRegular())
	return file, nil
}

// empty removes the content that a file of InPlace had.
func (o *File) empty() error {
	if !o.full.Swap(false) {
		return nil
	}
	return o.Truncate(0)
}

// Close closes the file. Standard output stays open.
func (o *File) Close() error {
	if o.IsStdout() {
		return nil
	}
	return cmp.Or(o.empty(), o.File.Close())
}
