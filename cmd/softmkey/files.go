package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/tool/filelock"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/stdfile"
	"github.com/softmkey/softmkey/mkeyio"
)

// openInput opens a file for reading; the name "-" is standard input. It refuses a file to
// which standard output writes, also for a command whose output is another file, because
// the command's report would be written into the input.
func openInput(name string) (*os.File, error) {
	f, err := os.Stdin, stdfile.CheckName(name)
	if err != nil {
		return nil, err
	}
	if name == "-" {
		err = stdfile.Check(f)
	} else {
		f, err = outfile.Open(ending, name, os.O_RDONLY, 0)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &os.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	if err == nil {
		err = outfile.RefuseStdout(f)
	}
	if err == nil {
		err = lockInput(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// waiting is a reader of an input that may keep the program waiting, as a terminal does. The first signal ends a Read. The
// system call may still write to the buffer then, so the caller must not use the buffer any more.
type waiting struct{ io.Reader }

// Read implements io.Reader.
func (w waiting) Read(p []byte) (int, error) {
	return outfile.Wait(ending, 0, func() (int, error) { return w.Reader.Read(p) })
}

// lockInput locks an input against commands that write to it.
func lockInput(f *os.File) error {
	if f == os.Stdin {
		return filelock.Inherited(f, true)
	}
	return filelock.Shared(f)
}

// inputName returns the name of an input in messages.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return lineout.Printable(name)
}

// outputFlags are the flags of every command that writes an output file.
type outputFlags struct{ riskPowerLoss, mounted bool }

func (f *outputFlags) bind(c *cobra.Command) {
	c.Flags().BoolVar(&f.riskPowerLoss, "risk-power-loss", false, "do not wait until the output file is on the disk: a power loss soon afterwards may leave neither the new file nor the one it replaces")
	c.Flags().BoolVar(&f.mounted, "overwrite-mounted", false, "write to a block device even if it is mounted or a part of another device")
}

// checkRoom returns an error if an output is a block device that is smaller than length.
func checkRoom(out *outfile.File, length int64) error {
	info, err := out.Stat()
	if err != nil || info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return err
	}
	if room, ok := seekable(out.File); ok && length > room {
		return fmt.Errorf("%s has %d bytes: the output has %d", lineout.Printable(out.Name()), room, length)
	}
	return nil
}

// jobLength returns the number of bytes of data in a job, and of its output.
func jobLength(job *mkeyio.StreamJob, in int64) (data, out int64) {
	from, to := jobFormats(job)
	if from != nil {
		in = from.DataLen(in)
	}
	if to != nil {
		return in, to.StreamLen(in)
	}
	return in, in
}

// create opens an output; the name "-" is standard output. A new file has the
// permissions of the input, as with cp, or those of secret if that is set.
func (f *outputFlags) create(name string, in *os.File, secret bool) (*outfile.File, error) {
	if name == "-" {
		return outfile.Stdout(in)
	}
	o := outfile.Options{Context: ending, Input: in, RiskPowerLoss: f.riskPowerLoss, Mounted: f.mounted}
	if in != nil {
		info, err := in.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			o.Mode = info.Mode().Perm()
		}
	}
	if secret {
		o.Mode = 0o600
	}
	return outfile.Create(name, o)
}

// writeOutput writes a file that appears when it is complete; the name "-" is standard output.
func writeOutput(name string, o outfile.Options, content []byte) error {
	if name == "-" {
		_, err := new(stdout).Write(content)
		return err
	}
	o.Context = ending
	out, err := outfile.Create(name, o)
	if err != nil {
		return err
	}
	if _, err := out.Write(content); err != nil {
		out.Abandon()
		return out.Explain(err)
	}
	return out.Commit()
}

// jobOutput returns an output file as the output of a job.
func jobOutput(out *outfile.File) (mkeyio.Output, error) {
	if out.IsStdout() {
		// Standard output may be a file that other programs write to as well.
		return mkeyio.To(os.Stdout), nil
	}
	return mkeyio.ToFile(out.File)
}

// stdout is standard output. Write fails if it was closed when the program began: another file may have its number since.
type stdout struct{ checked bool }

// Write implements io.Writer.
func (s *stdout) Write(p []byte) (int, error) {
	if !s.checked {
		if err := stdfile.Check(os.Stdout); err != nil {
			return 0, err
		}
		s.checked = true
	}
	return os.Stdout.Write(p)
}

// checkedWriter remembers the first error of a writer, for text whose printing
// functions do not return one. After the first signal it does not wait for a reader that takes nothing.
type checkedWriter struct {
	io.Writer

	mu  sync.Mutex // guards err: the queue of a server may still write when the server has ended
	err error
}

// Write writes to the writer inside.
func (w *checkedWriter) Write(p []byte) (int, error) {
	if err := w.failed(); err != nil && ending.Err() != nil {
		return 0, err
	}
	p = bytes.Clone(p) // the system call may go on
	n, err := outfile.Wait(ending, outfile.Patience, func() (int, error) { return w.Writer.Write(p) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	return n, err
}

// failed returns the first error.
func (w *checkedWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
