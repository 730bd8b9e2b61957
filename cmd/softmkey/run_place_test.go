//go:build linux && (amd64 || arm64)

package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// inMounts runs a line of shell in a mount namespace of its own.
func inMounts(t *testing.T, line string) (string, error) {
	t.Helper()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: only root may mount: %s", out)
	}
	out, err := exec.Command("unshare", "-m", "sh", "-c", line).CombinedOutput()
	return string(out), err
}

// TestRunFullMemory starts a run where /dev/shm has no room. The run must put its files into the
// folder for temporary files instead.
func TestRunFullMemory(t *testing.T) {
	softmkey, folder, addr := builtProgram(t), t.TempDir(), ownAddress(6)
	for _, size := range []string{"4k", "64k", "300k"} { // room for none, some and most of the files
		out, err := inMounts(t, "mount -t tmpfs -o size="+size+" none /dev/shm && TMPDIR="+folder+" "+softmkey+" run --device "+addr+" -- ibv_devices; echo status $?; ls /dev/shm")
		if err != nil || !strings.Contains(out, "mlx5_0") || !strings.HasSuffix(out, "status 0\n") {
			t.Errorf("with %s in /dev/shm: %v: %s", size, err, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestRunWithoutProc starts a run without /proc. The message must say that it is missing.
func TestRunWithoutProc(t *testing.T) {
	out, err := inMounts(t, "umount -l /proc && "+builtProgram(t)+" run --device "+ownAddress(6)+" -- true")
	if err == nil || !strings.Contains(out, "/proc is not mounted") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRunEmulated starts a run under qemu's emulation of user programs, which cannot work. The
// message must name the emulator as the reason.
func TestRunEmulated(t *testing.T) {
	emulator, err := exec.LookPath(map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[runtime.GOARCH])
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	out, err := exec.Command(emulator, builtProgram(t), "run", "--device", ownAddress(6), "--", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "an emulator (qemu-user)") {
		t.Errorf("%v: %s", err, out)
	}
}
