package identity

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

func of(t *testing.T, name string) ID {
	t.Helper()
	f, err := os.Open(name)
	fatal.If(t, err)
	defer f.Close()
	id, err := Of(f)
	fatal.If(t, err)
	if id[6]>>4 != 8 || id[8]>>6 != 2 {
		t.Errorf("%x is no UUID of version 8", id)
	}
	return id
}

// TestOf has images that stay the same disk, and others that do not.
func TestOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("NOT RUN: files have no identity of their own on this system")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "image")
	write := func(name, content string) {
		t.Helper()
		fatal.If(t, os.WriteFile(name, []byte(content), 0o600))
	}
	write(name, "one")
	id := of(t, name)
	write(name, "other content of the same file")
	if of(t, name) != id {
		t.Error("a write has changed the identifier")
	}
	moved := filepath.Join(dir, "moved")
	fatal.If(t, os.Rename(name, moved))
	if of(t, moved) != id {
		t.Error("a new name has changed the identifier")
	}
	write(name, "one")
	if of(t, name) == id {
		t.Error("another file with the old name has the old identifier")
	}
	seen := map[ID]bool{}
	for range 100 { // file systems use the numbers of inodes again
		fatal.If(t, os.Remove(name))
		write(name, "one")
		seen[of(t, name)] = true
	}
	if len(seen) != 100 {
		t.Errorf("100 files, one after the other, had %d identifiers", len(seen))
	}
}

func TestParse(t *testing.T) {
	if id, err := Parse("01234567-89AB-cdef-0123-456789abcdef"); err != nil || id != (ID{1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}) {
		t.Errorf("%x %v", id, err)
	}
	for _, s := range []string{"", "x", "01234567-89ab-cdef-0123-456789abcde", "00000000-0000-0000-0000-000000000000", "01234567-89ab-cdef-0123-456789abcdefff"} {
		if id, err := Parse(s); err == nil {
			t.Errorf("%q is %x", s, id)
		}
	}
	ids := []ID{{1}, {2}}
	if a, b := Serial("n", ids), Serial("n", ids[:1]); len(a) != 16 || a == b || a == Serial("m", ids) || a != Serial("n", ids) {
		t.Errorf("serial numbers %s and %s", a, b)
	}
}
