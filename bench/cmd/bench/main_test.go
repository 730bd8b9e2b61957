package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", dir} {
		if err := writable(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := writable(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
