//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// ends executes a command and returns its output and its exit status.
func ends(t *testing.T, c *exec.Cmd) (string, int) {
	t.Helper()
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// TestRunNotStarted starts programs that cannot be started, or that have no device.
func TestRunNotStarted(t *testing.T) {
	program, dir := builtProgram(t), t.TempDir()
	for name, text := range map[string]string{"plain": "", "script": "exit 7\n", "interpreter": "#!/no/such/shell\n"} {
		writeFile(t, filepath.Join(dir, name), []byte(text), 0o755)
	}
	fatal.If(t, os.Chmod(filepath.Join(dir, "plain"), 0o644))
	addr := ownAddress(10)
	for _, test := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"not found", []string{"no-such-program"}, 127, "no-such-program: no folder of PATH has this program"},
		{"not executable", []string{"./plain"}, 126, "./plain: permission denied"},
		{"no interpreter", []string{"./interpreter"}, 127, "./interpreter: it needs /no/such/shell, which does not exist"},
		{"no shebang", []string{"./script"}, 7, ""},
		{"a run in a run", []string{program, "run", "--device", ownAddress(11), "--", "true"}, 2, "this process is already under a supervisor of system calls"},
		{"a signal", []string{"sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), program, append([]string{"run", "--device", addr, "--"}, test.args...)...)
			c.Dir = dir
			out, status := ends(t, c)
			if status != test.status || !strings.Contains(out, test.says) || test.says == "" && out != "" {
				t.Errorf("exit status %d, want %d: %s", status, test.status, out)
			}
		})
	}
}

// TestRunWithoutLibraries hides libibverbs' list of drivers.
func TestRunWithoutLibraries(t *testing.T) {
	need(t, "unshare", "mount")
	if _, err := os.Stat("/etc/libibverbs.d"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	const hide = `mount -t tmpfs none /etc/libibverbs.d || exit 77; exec "$@"`
	program := builtProgram(t)
	c := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", hide, "sh", program, "run", "--", "true")
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SOFTMKEY_NO_LIBRARY_CHECK=") })
	out, status := ends(t, c)
	if status == 77 || strings.Contains(out, "unshare failed") {
		t.Skipf("NOT RUN: mount namespaces are forbidden here: %s", out)
	}
	if status != 2 || !strings.Contains(out, "install rdma-core's libraries (Debian: ibverbs-providers)") {
		t.Errorf("exit status %d: %s", status, out)
	}
	c = exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", hide, "sh", program, "run", "--device", ownAddress(10), "--", "true")
	if out, status := ends(t, c); status != 0 {
		t.Errorf("without the check: exit status %d: %s", status, out)
	}
}

// TestRunStatic runs a static program, which opens the device without libraries.
func TestRunStatic(t *testing.T) {
	dir := t.TempDir()
	source, static := filepath.Join(dir, "static.c"), filepath.Join(dir, "static")
	const text = `
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
int main(void)
{
	char guid[64] = "";
	struct stat st;
	int fd = open("/dev/infiniband/uverbs0", O_RDWR);
	if (fd < 0 || fstat(fd, &st) || read(open("/sys/class/infiniband/mlx5_0/node_type", O_RDONLY), guid, 63) < 0)
		return 1;
	printf("%d:%d %s", (int)major(st.st_rdev), (int)minor(st.st_rdev), guid);
	return 0;
}`
	writeFile(t, source, []byte(text), 0o600)
	compile(t, "libc6-dev", "gcc", "-static", "-o", static, source)
	c := exec.CommandContext(t.Context(), builtProgram(t), "run", "--device", ownAddress(10), "--", static)
	if out, status := ends(t, c); status != 0 || out != "231:192 1: CA\n" {
		t.Errorf("exit status %d: %s", status, out)
	}
}

// TestRunSetuid runs a set-user-ID program.
func TestRunSetuid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: a program of root that is setuid needs root")
	}
	dir, program := userFolder(t)
	privileged := filepath.Join(dir, "privileged")
	id, err := exec.LookPath("id")
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	fatal.If(t, copyProgram(privileged, id))
	fatal.If(t, os.Chmod(privileged, 0o755|os.ModeSetuid))
	c := exec.CommandContext(t.Context(), program, "run", "--device", ownAddress(10), "--", privileged, "-u")
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, status := ends(t, c)
	if status != 0 || !strings.Contains(out, "privileged is setuid, and runs with this user's rights") || !strings.HasSuffix(out, "\n65534\n") {
		t.Errorf("exit status %d: %s", status, out)
	}
}
