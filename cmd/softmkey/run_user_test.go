//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
)

// TestRunAsUser runs programs as an ordinary user without any capability, with
// little memory that may be locked, and once more in a user namespace.
func TestRunAsUser(t *testing.T) {
	need(t, "ibv_devinfo", "rping", "prlimit")
	dir, program := userFolder(t)
	addr := ownAddress(1)
	for _, test := range []struct {
		name  string
		flags uintptr
	}{{"user", 0}, {"user namespace", unix.CLONE_NEWUSER}} {
		t.Run(test.name, func(t *testing.T) {
			out, err := rpings(t, func(ctx context.Context) *exec.Cmd {
				c := exec.CommandContext(ctx, "prlimit", "--memlock=65536", program, "run", "-v", "--device", addr, "--", "sh", "-c",
					`ibv_devinfo -v && { rping -s -a $0 -C 5 -V & sleep 1; rping -c -a $0 -C 5 -V && wait $! && echo "5 pings"; }`, addr)
				c.Dir = dir
				c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: test.flags}
				if os.Geteuid() == 0 {
					c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
				}
				if test.flags != 0 {
					me := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
					if os.Geteuid() == 0 {
						me[0].HostID = nobody
						c.SysProcAttr.GidMappings = me
					}
					c.SysProcAttr.UidMappings = me
				}
				return c
			})
			if test.flags != 0 && strings.Contains(string(out), "operation not permitted") {
				t.Skipf("NOT RUN: user namespaces are forbidden here: %v", err)
			}
			if err != nil || !strings.Contains(string(out), "RoCE v2") || !strings.Contains(string(out), "5 pings") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestRunOwnSession checks that the supervisor of an ordinary user has a session of its own if the
// kernel divides processor time among sessions (autogroup), and that the program stays in the session
// in which it was started.
func TestRunOwnSession(t *testing.T) {
	if on, _ := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled"); strings.TrimSpace(string(on)) != "1" || os.Geteuid() != 0 {
		t.Skip("NOT RUN: the kernel groups no processes by session here, or the test is not run by root")
	}
	dir, program := userFolder(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const script = `
session() { read -r stat <"/proc/$1/stat"; set -- ${stat##*) }; echo "$4"; }
read -r stat <"/proc/$PPID/stat"; set -- ${stat##*) }; supervisor=$2
until [ "$(session $supervisor)" = "$supervisor" ]; do sleep 0.01; done
echo "the program's session is $(session $$)"`
	c := exec.CommandContext(ctx, "sh", "-c", `"$0" run --device "$1" -- sh -c "$2"; exit $?`, program, ownAddress(4), script)
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if want := fmt.Sprintf("the program's session is %d\n", c.Process.Pid); err != nil || string(out) != want {
		t.Errorf("%v: %swant %s", err, out, want)
	}
}

// nobody is the ID of a user without any rights.
const nobody = 65534

// userFolder returns a folder that every user can read, and softmkey in it.
func userFolder(t *testing.T) (dir, program string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "softmkey-user-") // t.TempDir is only for its owner
	fatal.If(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	fatal.If(t, os.Chmod(dir, 0o755))
	program = filepath.Join(dir, "softmkey")
	fatal.If(t, copyProgram(program, builtProgram(t)))
	return dir, program
}

// ownAddress returns the text of a loopback address that no other process of tests takes.
func ownAddress(n int) string {
	return udptest.Addr(byte(n)).String()
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
