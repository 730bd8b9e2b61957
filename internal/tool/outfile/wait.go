package outfile

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/softmkey/softmkey/internal/tool/filelock"
)

// Patience is how long a write to a pipe may go on after the context has ended.
const Patience = time.Second

// Wait returns the results of f. If the context ends before f returns, Wait gives f some more time, and then returns the
// context's cause; f goes on until its system call or the process ends.
func Wait[T any](ctx context.Context, more time.Duration, f func() (T, error)) (value T, err error) {
	type results struct {
		value T
		err   error
	}
	done := make(chan results, 1)
	go func() {
		v, err := f()
		done <- results{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	late := time.NewTimer(more)
	defer late.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-late.C:
		return value, context.Cause(ctx)
	}
}

// Open opens a file as os.OpenFile does. If the context ends before, as while a named pipe has no
// program at its other end, it returns the context's cause.
func Open(ctx context.Context, name string, flag int, mode os.FileMode) (*os.File, error) {
	return Wait(ctx, 0, func() (*os.File, error) { return os.OpenFile(name, flag, mode) })
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
	n, err := Wait(o.ctx, Patience, func() (int, error) { return o.File.Write(p) })
	if o.ctx.Err() != nil {
		o.blocked = err
	}
	return n, err
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
