//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// The process that run starts as the program's guard branches off here.
func init() { intercept.Child() }

// run runs the program with its standard streams and returns how it ended.
func (f *runFlags) run(args []string, streams [3]*os.File) (err error) {
	path, err := intercept.LookPath(args[0])
	if err != nil {
		return notStarted(err)
	}
	if err := needLibraries(); err != nil {
		return err
	}
	if lost := intercept.LosesPrivilege(path); lost != "" {
		warn(fmt.Errorf("run: %s %s, and runs with this user's rights nevertheless: the kernel gives none to a program whose system calls are intercepted", path, lost))
	}
	intercept.ShortSlices()
	b := &runner{flags: f}
	defer func() {
		if err2 := b.close(); err == nil {
			err = err2
		}
	}()
	if b.root, b.lock, err = newTree(); err != nil {
		return err
	}
	env := append(os.Environ(), "MLX_QP_ALLOC_TYPE=PREFER_CONTIG", "MLX_CQ_ALLOC_TYPE=PREFER_CONTIG")
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // as nohup leaves it to the program
			signal.Notify(signals, sig)
		}
	}
	s, err := intercept.Start(intercept.Config{
		Path: path, Args: args, Env: env,
		Stdin: streams[0], Stdout: streams[1], Stderr: streams[2],
		Prepare: b.open,
		Root:    b.root, Remove: b.root, Reap: f.ownProcess, Owned: uverbs.Owned(), Listed: uverbs.Listed(), Refresh: b.refresh, Node: b.node, Warn: warn,
	})
	if err != nil {
		signal.Stop(signals)
		return notStarted(err)
	}
	if f.ownProcess {
		intercept.OwnSession()
	}
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forward(s, signals) })
	status := s.Wait()
	signal.Stop(signals)
	close(signals) // nothing sends to it any more
	forwarding.Wait()
	return ended(status)
}

// notStarted gives the error of a program that cannot be executed the exit status of shells.
func notStarted(err error) error {
	var e *intercept.ExecError
	if errors.As(err, &e) {
		return startError{programStatus(e.Status()), fmt.Errorf("run: %w", err)}
	}
	return err
}

// needLibraries refuses to start where no program could find the device.
func needLibraries() error {
	found, _ := filepath.Glob("/etc/libibverbs.d/*mlx5*")
	if len(found) > 0 || os.Getenv("SOFTMKEY_NO_LIBRARY_CHECK") != "" {
		return nil
	}
	return errors.New("run: libibverbs has no mlx5 driver here (/etc/libibverbs.d has no mlx5.driver): install rdma-core's libraries (Debian: ibverbs-providers), or set SOFTMKEY_NO_LIBRARY_CHECK=1 if the program brings its own")
}

// ended turns the program's end into this command's.
func ended(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return programStatus(128 + int(status.Signal()))
	case status.ExitStatus() != 0:
		return programStatus(status.ExitStatus())
	}
	return nil
}

// forwarded are the signals that are the program's.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
}

// forward passes signals on. The terminal sends its own to the whole foreground
// process group, which the program belongs to.
func forward(s *intercept.Supervisor, signals <-chan os.Signal) {
	for sig := range signals {
		switch sig {
		case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
			if inForeground() {
				continue
			}
		}
		s.Signal(sig.(syscall.Signal))
	}
}

// inForeground reports whether this process group is the terminal's foreground
// one.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// warn prints why a process cannot have the device.
func warn(err error) { fmt.Fprintf(os.Stderr, "softmkey: %v\n", err) }

// uverbsNode is the node of a device.
type uverbsNode struct{ *uverbs.Device }

func (n uverbsNode) Major() uint32 { major, _ := n.Number(); return major }
func (n uverbsNode) Minor() uint32 { _, minor := n.Number(); return minor }

func (n uverbsNode) Open(c *intercept.Call) (intercept.File, error) {
	process, err := c.Memory()
	if err != nil {
		return nil, err
	}
	f, err := n.Device.Open(process)
	if err != nil {
		return nil, err
	}
	return uverbsFile{f}, nil
}

// uverbsFile is one open of a device's node.
type uverbsFile struct{ *uverbs.File }

func (f uverbsFile) Ioctl(c *intercept.Call, arg uint64) {
	if errno := f.File.Ioctl(c, arg); errno != 0 {
		c.Fail(errno)
		return
	}
	c.Return(0)
}

func (f uverbsFile) Write(c *intercept.Call, _ []byte) { c.Fail(unix.EINVAL) }
func (f uverbsFile) Released()                         { f.Close() }
