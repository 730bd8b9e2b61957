//go:build linux && (amd64 || arm64)

package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveLeft removes the folders that no process has locked.
func TestRemoveLeft(t *testing.T) {
	parent := t.TempDir()
	used, left := filepath.Join(parent, "softmkey-run-1"), filepath.Join(parent, "softmkey-run-2")
	for _, folder := range []string{used, left} {
		if err := os.MkdirAll(filepath.Join(folder, "sys", "class"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock := lockTree(used)
	if lock == nil {
		t.Fatal("the folder cannot be locked")
	}
	defer lock.Close()
	removeLeft(parent)
	if _, err := os.Stat(used); err != nil {
		t.Errorf("the folder of a run: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that was left: %v", err)
	}
}
