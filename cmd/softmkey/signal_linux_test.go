package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestFirstSignalEnds sends one signal to commands that wait for the other end of a named pipe,
// for a writer that does not write, or for a reader that does not read.
func TestFirstSignalEnds(t *testing.T) {
	softmkey, dir := self(t), t.TempDir()
	fifo, in := filepath.Join(dir, "fifo"), filepath.Join(dir, "in")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	writeFile(t, in, make([]byte, 1<<20), 0o600)
	out := filepath.Join(dir, "out")
	full := filepath.Join(dir, "full")
	fatal.If(t, syscall.Mkfifo(full, 0o600))
	lazy, err := unix.Open(full, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // never reads
	fatal.If(t, err)
	defer unix.Close(lazy)
	text, err := os.OpenFile(full, os.O_WRONLY, 0)
	fatal.If(t, err)
	defer text.Close()
	silent, writer, err := os.Pipe()
	fatal.If(t, err)
	defer silent.Close()
	defer writer.Close()
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"verify", []string{"verify", "--sig", "t10dif", fifo}},
		{"detect", []string{"detect", fifo}},
		{"draw", []string{"draw", fifo}},
		{"inspect", []string{"inspect", "--sig", "t10dif", fifo}},
		{"key", []string{"tx", "--crypto", "encrypt", "--dek", fifo, in, out}},
		{"protect from", []string{"protect", "--sig", "t10dif", fifo, out}},
		{"protect to", []string{"protect", "--sig", "t10dif", in, fifo}},
		{"copy to", []string{"copy", in, fifo}},
		{"copy, recording", []string{"copy", "--pcap", fifo, in, out}},
		{"protect, full", []string{"protect", "--sig", "t10dif", in, full}},
		{"copy, full", []string{"copy", in, full}},
		{"copy, full recording", []string{"copy", "--pcap", full, in, os.DevNull}},
		{"verify -", []string{"verify", "--sig", "t10dif", "-"}},
		{"draw -", []string{"draw", "-"}},
		{"inspect -", []string{"inspect", "--sig", "t10dif", "--blocks", "7-", "-"}},
		{"key -", []string{"tx", "--crypto", "encrypt", "--dek", "-", in, out}},
		{"target, key -", []string{"target", "--crypto", "encrypt", "--dek", "-", in}},
		{"inspect, full text", []string{"inspect", "--sig", "t10dif", in}},
		{"verify, full text", []string{"verify", "--sig", "t10dif", "--max-errors", "0", in}},
		{"run, recording", []string{"run", "--pcap", fifo, "--", "true"}},
		{"run, trace", []string{"run", "--trace=" + fifo, "--", "true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := exec.Command(softmkey, tc.args...)
			c.Stdin = silent
			if strings.HasSuffix(tc.name, "full text") {
				c.Stdout, c.Stderr = text, text
			}
			fatal.If(t, c.Start())
			defer c.Process.Kill()
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			for !waits(c.Process.Pid) && !isFull(lazy) {
				select {
				case err := <-ended:
					t.Fatalf("it ended before the signal: %v", err)
				case <-time.After(5 * time.Millisecond):
				}
			}
			fatal.If(t, c.Process.Signal(syscall.SIGTERM))
			<-ended
			for buf := make([]byte, 1<<16); ; { // empty the pipe for the next command
				if n, err := unix.Read(lazy, buf); n <= 0 || err != nil {
					break
				}
			}
			if got := c.ProcessState.ExitCode(); got != 128+int(syscall.SIGTERM) {
				t.Errorf("exit status %d", got)
			}
		})
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a command that a signal ended has left its output")
	}
}

// waits reports whether a thread of a process waits in the open of a named pipe, or for the writer of a pipe.
func waits(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	if err != nil {
		return false
	}
	for _, name := range threads {
		if where, _ := os.ReadFile(name); strings.Contains(string(where), "wait_for_partner") || strings.Contains(string(where), "pipe_read") {
			return true
		}
	}
	return false
}

// isFull reports whether nobody can write to a pipe.
func isFull(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && n > 60<<10
}
