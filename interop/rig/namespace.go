package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// insideEnv is the environment variable that marks the program that runs inside the
// namespace.
const insideEnv = "SOFTMKEY_INTEROP_INSIDE"

// Main runs the tests of m in a new network namespace, by executing the test binary again
// inside it. It returns the exit status.
func Main(m interface{ Run() int }) int {
	if os.Getenv(insideEnv) != "" {
		if err := run("ip", "link", "set", "lo", "up"); err != nil {
			fmt.Fprintln(os.Stderr, "rig:", err)
			return 1
		}
		return m.Run()
	}
	status, err := reexec()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig: entering a network namespace (this needs root):", err)
		return 1
	}
	return status
}

// reexec runs this program again, with the same arguments, in a new network namespace.
func reexec() (status int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}

	// Signals for this process are passed on to the program. For example, "go test"
	// sends SIGQUIT to a binary that takes too long, to print its goroutines.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	started, ended, err := startBound(cmd)
	if err != nil {
		return 0, err
	}
	for {
		select {
		case s := <-signals:
			_ = started.Signal(s) // fails only if it has just ended, which the other case handles
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Exited() {
				return exit.ExitCode(), nil
			}
			return 0, err
		}
	}
}

// startBound starts a program that the kernel kills when this process ends. Its result is
// sent on the channel.
//
// The kernel binds the parent death signal to the thread that started the child, not to
// the process, so the goroutine keeps its thread until the child has ended.
func startBound(cmd *exec.Cmd) (*os.Process, <-chan error, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, nil, err
	}
	return cmd.Process, ended, nil
}

// run runs a program. If it fails, the error contains its output.
func run(name string, args ...string) error {
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, text)
	}
	return nil
}
