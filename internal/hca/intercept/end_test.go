//go:build linux && (amd64 || arm64)

package intercept

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// noCgroups is the variable that makes a process of this test believe that there are no control
// groups.
const noCgroups = "INTERCEPT_TEST_NO_CGROUPS"

// TestNothingLeft runs shells that leave processes behind, which hold the write end of a pipe. The
// run ends when the last of them has ended, and leaves no control group.
func TestNothingLeft(t *testing.T) {
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	for _, v := range []struct {
		name, script string
		killed       bool
	}{
		{"sleeper", `sleep 100 & exit 0`, false},
		{"other session", `setsid sleep 100 & exit 0`, false},
		{"deaf", `(trap "" TERM; sleep 100; sleep 100) & exit 0`, false},
		// Each process of the chain starts the next one and ends.
		{"chain", `trap "" TERM; f() { [ -e "$STOP" ] || f & }; f; exit 0`, false},
		{"chains", `trap "" TERM; f() { [ -e "$STOP" ] || f & }; f; f; f; f; exit 0`, false},
		{"killed guard", `setsid sleep 100 & kill -KILL $PPID; sleep 100`, true},
		{"killed guard and chain", `f() { [ -e "$STOP" ] || f & }; f; kill -KILL $PPID; sleep 100`, true},
	} {
		for _, groups := range []bool{true, false} {
			name := v.name
			if !groups {
				name += ", no control groups"
			}
			t.Run(name, func(t *testing.T) {
				stop := filepath.Join(t.TempDir(), "stop")
				env := append(os.Environ(), "STOP="+stop)
				if roots := cgroupRoots; !groups {
					env = append(env, noCgroups+"=1")
					cgroupRoots = nil
					defer func() { cgroupRoots = roots }()
				}
				defer os.WriteFile(stop, nil, 0o644) // the chain ends in any case
				r, w, err := os.Pipe()
				fatal.If(t, err)
				defer r.Close()
				null, err := os.Open(os.DevNull)
				fatal.If(t, err)
				defer null.Close()
				s, err := Start(Config{
					Path: "/bin/sh", Args: []string{"sh", "-c", v.script}, Env: env, Stdin: null, Stdout: w, Stderr: w,
					Root: t.TempDir(), Node: func(string) Node { return nil }, Reap: true,
				})
				w.Close()
				var cgroup string
				switch {
				case err == nil:
					cgroup = cgroupOf(s.guarded.guard.Pid)
					status := s.Wait()
					if v.killed != (status.Signal() == syscall.SIGKILL) || !v.killed && status != 0 {
						t.Errorf("status %#x", status)
					}
				case v.killed && errors.Is(err, syscall.ECHILD):
					// The program killed the guard before the guard had said that the program runs.
				default:
					t.Skipf("NOT RUN: %v", err)
				}
				// The pipe is at its end if no process is left.
				r.SetReadDeadline(time.Now().Add(10 * time.Second))
				if out, err := io.ReadAll(r); err != nil {
					t.Errorf("a process is left: %v: %s", err, out)
				}
				if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
					t.Errorf("a child is left: %v", err)
				}
				if groups && cgroup != "" {
					if _, err := os.Stat(cgroup); err == nil {
						t.Errorf("%s is left", cgroup)
					}
				}
			})
		}
	}
}
