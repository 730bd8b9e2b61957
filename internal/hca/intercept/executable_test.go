//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// elfFile returns a program file without code: its header, and the name of its dynamic loader
// if loader is not empty.
func elfFile(class elf.Class, machine elf.Machine, loader string) []byte {
	var b bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	header := elf.Header64{
		Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	if loader != "" {
		header.Phnum = 1
	}
	binary.Write(&b, binary.LittleEndian, header)
	if loader != "" {
		binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_INTERP), Flags: 4, Off: 64 + 56, Filesz: uint64(len(loader) + 1), Memsz: uint64(len(loader) + 1), Align: 1})
		b.WriteString(loader + "\x00")
	}
	return b.Bytes()
}

// TestExecutable starts files that are no programs, or programs that cannot run.
func TestExecutable(t *testing.T) {
	native, other, compat := elf.EM_X86_64, elf.EM_S390, elf.EM_386
	if runtime.GOARCH == "arm64" {
		native, compat = elf.EM_AARCH64, elf.EM_ARM
	}
	dir := t.TempDir()
	write := func(name string, content []byte, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		fatal.If(t, os.WriteFile(path, content, mode))
		return path
	}
	for _, test := range []struct {
		name   string
		path   string
		errno  syscall.Errno
		status int
		says   string
	}{
		{"not there", filepath.Join(dir, "nothing"), unix.ENOENT, 127, "no such file"},
		{"not in PATH", "no-such-program", unix.ENOENT, 127, "no folder of PATH"},
		{"no name", "", unix.ENOENT, 127, `"": no folder of PATH`},
		{"below a file", write("file", nil, 0o755) + "/x", unix.ENOTDIR, 127, "not a directory"},
		{"a folder", dir, unix.EISDIR, 126, "is a directory"},
		{"not executable", write("plain", []byte("#!/bin/sh\n"), 0o644), unix.EACCES, 126, "permission denied"},
		{"32 bits", write("compat", elfFile(elf.ELFCLASS32, compat, ""), 0o755), unix.ENOEXEC, 126, "a 32-bit program"},
		{"another processor", write("other", elfFile(elf.ELFCLASS64, other, ""), 0o755), unix.ENOEXEC, 126, "no program for this kernel and processor"},
		{"data", write("data", []byte{1, 2, 0, 3}, 0o755), unix.ENOEXEC, 126, "no program for this kernel and processor"},
		{"no interpreter", write("script", []byte("#! /no/such/shell -e\n"), 0o755), unix.ENOENT, 127, "it needs /no/such/shell, which does not exist"},
		{"no loader", write("loader", elfFile(elf.ELFCLASS64, native, "/no/ld.so"), 0o755), unix.ENOENT, 127, "it needs /no/ld.so, which does not exist"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path, err := LookPath(test.path)
			if err == nil {
				_, err = Start(Config{Path: path, Args: []string{path}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Root: dir, Node: func(string) Node { return nil }})
			}
			if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EPERM) {
				t.Skipf("NOT RUN: %v", err)
			}
			var e *ExecError
			if !errors.As(err, &e) || !errors.Is(err, test.errno) || e.Status() != test.status || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v; expected %v, %q", err, test.errno, test.says)
			}
		})
	}
}

// TestScript runs a script that names no interpreter, as execvp does.
func TestScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo $0 $1 $2; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, end := startWith(t, "", &fakeDevice{}, func(c *Config) { c.Path, c.Args = script, []string{"name", "a", "b c"} })
	if out, status := end(); status.ExitStatus() != 3 || out != script+" a b c\n" {
		t.Errorf("%v: %q", status, out)
	}
}

// TestLosesPrivilege looks at files that give rights to whoever executes them.
func TestLosesPrivilege(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: giving files away needs root")
	}
	path := filepath.Join(t.TempDir(), "program")
	for _, test := range []struct {
		uid, gid int
		mode     os.FileMode
		lost     string
	}{
		{1, 1, 0o755, ""},
		{1, 0, 0o755 | os.ModeSetuid, "is setuid"},
		{0, 1, 0o755 | os.ModeSetgid, "is setgid"},
		{0, 0, 0o755 | os.ModeSetuid | os.ModeSetgid, ""},
	} {
		os.Remove(path)
		fatal.If(t, os.WriteFile(path, nil, 0o755))
		fatal.If(t, os.Chown(path, test.uid, test.gid))
		fatal.If(t, os.Chmod(path, test.mode))
		if lost := LosesPrivilege(path); lost != test.lost {
			t.Errorf("%v of %d:%d: %q, want %q", test.mode, test.uid, test.gid, lost, test.lost)
		}
	}
}
