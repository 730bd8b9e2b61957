package identity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestLoop has loop devices. They are the same disk if they begin at the same byte of the same file.
func TestLoop(t *testing.T) {
	dir := t.TempDir()
	name, moved := filepath.Join(dir, "image"), filepath.Join(dir, "moved")
	fatal.If(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	loop := func(file, offset string) ID {
		t.Helper()
		out, err := exec.Command("losetup", "--find", "--show", "--offset", offset, file).Output()
		if err != nil {
			t.Skipf("NOT RUN: losetup: %v", err)
		}
		device := strings.TrimSpace(string(out))
		defer exec.Command("losetup", "--detach", device).Run()
		return of(t, device)
	}
	id := loop(name, "0")
	if loop(name, "65536") == id {
		t.Error("a device that begins elsewhere in the file has the same identifier")
	}
	fatal.If(t, os.Rename(name, moved))
	if loop(moved, "0") != id {
		t.Error("a new name of the file has changed the identifier")
	}
	fatal.If(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	if loop(name, "0") == id {
		t.Error("another file with the old name has the old identifier")
	}
}
