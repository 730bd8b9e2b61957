//go:build linux && (amd64 || arm64)

package session

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/intercept"
)

// forwarded are the signals that are passed on to the program.
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
