package outfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// names returns the names in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	fatal.If(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	fatal.If(t, err)
	return string(b)
}

func createFile(t *testing.T, name string, o Options, text string) *File {
	t.Helper()
	f, err := Create(name, o)
	fatal.If(t, err)
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestCommit creates and replaces files, with and without O_TMPFILE.
func TestCommit(t *testing.T) {
	for _, unnamed := range []bool{true, false} {
		t.Run(map[bool]string{true: "unnamed", false: "named"}[unnamed], func(t *testing.T) {
			if !unnamed {
				unnamedFiles = false
				t.Cleanup(func() { unnamedFiles = true })
			}
			dir := t.TempDir()
			name := filepath.Join(dir, "out")
			f := createFile(t, name, Options{}, "first")
			if list := names(t, dir); slices.Contains(list, "out") {
				t.Errorf("before Commit the folder has %q, want no out", list)
			}
			fatal.If(t, f.Commit())
			f.Abandon() // does nothing after Commit
			f = createFile(t, name, Options{}, "second")
			if got := content(t, name); got != "first" {
				t.Errorf("before the second Commit the file has %q, want first", got)
			}
			fatal.If(t, f.Commit())
			if got := content(t, name); got != "second" {
				t.Errorf("after the second Commit the file has %q, want second", got)
			}
			createFile(t, name, Options{RiskPowerLoss: true}, "third").Abandon()
			if got := content(t, name); got != "second" {
				t.Errorf("after Abandon the file has %q, want second", got)
			}
			if list := names(t, dir); !slices.Equal(list, []string{"out"}) {
				t.Errorf("the folder has %q, want only out", list)
			}

			// A file that appears while the new one is written is another program's, and stays.
			other := filepath.Join(dir, "other")
			for _, prepare := range []bool{true, false} {
				os.Remove(other)
				f = createFile(t, other, Options{}, "new")
				if prepare {
					fatal.If(t, f.Prepare())
				}
				fatal.If(t, os.WriteFile(other, []byte("old"), 0o600))
				if err := f.Commit(); !errors.Is(err, errAppeared) || content(t, other) != "old" {
					t.Errorf("prepared %v: Commit over a file that has appeared: %v, content %q, want old", prepare, err, content(t, other))
				}
				if list := names(t, dir); !slices.Equal(list, []string{"other", "out"}) {
					t.Errorf("prepared %v: left behind: %q", prepare, list)
				}
			}
			keepExisting(t, dir)
		})
	}
}

func keepExisting(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "key")
	o := Options{Mode: 0o600, KeepExisting: true}
	f := createFile(t, name, o, "key")
	if f.temporary == "" { // without a name, another process can take it
		g := createFile(t, name, o, "other")
		if err := g.Commit(); err != nil {
			t.Error(err)
		}
		if err := f.Commit(); !errors.Is(err, os.ErrExist) || content(t, name) != "other" {
			t.Errorf("%v, %q", err, content(t, name))
		}
	} else if err := f.Commit(); err != nil || content(t, name) != "key" {
		t.Errorf("%v, %q", err, content(t, name))
	}
	if f, err := Create(name, o); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v, %v", f, err)
	}
	gone := filepath.Join(dir, "gone")
	createFile(t, gone, o, "key").Abandon()
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if list := names(t, dir); !slices.Equal(list, []string{"key", "other", "out"}) {
		t.Errorf("left behind: %q", list)
	}
}

// TestKilledBeforeCommit neither commits nor abandons a file, as when the process is killed.
func TestKilledBeforeCommit(t *testing.T) {
	dir := t.TempDir()
	f := createFile(t, filepath.Join(dir, "out"), Options{}, "half")
	if f.temporary != "" {
		f.Abandon()
		t.Skip("NOT RUN: the file system of the temporary directory has no O_TMPFILE")
	}
	fatal.If(t, f.File.Close())
	if list := names(t, dir); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	for _, unnamed := range []bool{true, false} {
		unnamedFiles = unnamed
		f := createFile(t, filepath.Join(dir, "out"), Options{}, "x")
		_, err := f.Seek(-1, 0)
		var e *os.PathError
		if !errors.As(f.Explain(err), &e) || e.Path != filepath.Join(dir, "out") {
			t.Errorf("unnamed %v: %v", unnamed, err)
		}
		f.Abandon()
		_, err = Create(filepath.Join(dir, "absent", "out"), Options{})
		if !errors.As(err, &e) || e.Path != filepath.Join(dir, "absent", "out") || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("unnamed %v: %v", unnamed, err)
		}
	}
	unnamedFiles = true
}

func TestFileModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes here")
	}
	dir := t.TempDir()
	mode := func(name string) os.FileMode {
		info, err := os.Stat(filepath.Join(dir, name))
		fatal.If(t, err)
		return info.Mode().Perm()
	}
	f := createFile(t, filepath.Join(dir, "new"), Options{Mode: 0o640}, "")
	if err := f.Restrict(); err != nil {
		t.Error(err)
	}
	if err := f.Commit(); err != nil || mode("new") != 0o600 {
		t.Errorf("%v, %v", err, mode("new"))
	}
	fatal.If(t, os.Chmod(filepath.Join(dir, "new"), 0o604))
	f = createFile(t, filepath.Join(dir, "new"), Options{Mode: 0o600}, "")
	if err := f.Restrict(); err != nil {
		t.Error(err)
	}
	if err := f.Commit(); err != nil || mode("new") != 0o604 {
		t.Errorf("replaced: %v, %v", err, mode("new"))
	}
}

func TestSameFileCollides(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	fatal.If(t, os.WriteFile("a", nil, 0o666))
	if err := os.Link("a", "b"); err != nil {
		t.Skip(err)
	}
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", true}, {"a", "./b", true}, {"a", filepath.Join(dir, "a"), true},
		{"new", "new", true}, {"new", filepath.Join(dir, "new"), true},
		{"a", "new", false}, {"new", "a", false}, {"new", "newer", false}, {"absent/x", "x", false},
		{os.DevNull, os.DevNull, false},
	} {
		if got := Collides(tc.a, tc.b); got != tc.want {
			t.Errorf("%s, %s: %v", tc.a, tc.b, got)
		}
	}
}
