package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/internal/tool/outfile"
)

func TestMain(m *testing.M) {
	// Runs begin on a host without rdma-core's libraries, too. A test whose programs need them needs the programs.
	os.Setenv("SOFTMKEY_NO_LIBRARY_CHECK", "1")
	testscript.Main(cleaning{m}, map[string]func(){"softmkey": main})
}

// afterTests holds functions that run after all tests.
var afterTests []func()

// cleaning runs the tests, and then afterTests. The tests' programs get libsoftmkey-run.so, as those of installations
// do, if there is a C compiler. SOFTMKEY_LIBRARY=- leaves it out.
type cleaning struct{ m *testing.M }

func (c cleaning) Run() int {
	if dir, err := os.MkdirTemp("", "softmkey-library"); err == nil && os.Getenv("SOFTMKEY_LIBRARY") == "" {
		defer os.RemoveAll(dir)
		if exec.Command("../../scripts/library.sh", dir).Run() == nil {
			os.Setenv("SOFTMKEY_LIBRARY", filepath.Join(dir, libraryName))
		}
	}
	status := c.m.Run()
	for _, f := range afterTests {
		f()
	}
	return status
}

// TestScript runs the sessions in testdata/script.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			root, err := filepath.Abs(filepath.Join("..", ".."))
			e.Setenv("ROOT", root)
			e.Setenv("SOFTMKEY_LIBRARY", os.Getenv("SOFTMKEY_LIBRARY"))
			// Each script uses its own loopback network, so that they can run at
			// the same time.
			e.Setenv("NET", strings.TrimSuffix(udptest.Network().Addr().String(), ".0"))
			// Under the race detector a process sleeps for a second before it
			// exits, and a command that ends with 1 hides a race.
			e.Setenv("GORACE", "atexit_sleep_ms=0 halt_on_error=1")
			// Debian's location of mkfs.ext4 and e2fsck, which ordinary users
			// may run.
			e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+"/usr/sbin")
			return err
		},
		Condition: func(cond string) (bool, error) {
			if cond == "loopdevices" {
				return exec.Command("losetup", "--find").Run() == nil && os.Geteuid() == 0, nil
			}
			if cond != "unnamedfiles" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return unnamedFiles(t.TempDir()), nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":    exitStatus,
			"random":    randomFile,
			"fill":      fillFile,
			"unhex":     unhexFile,
			"hex":       hexOf,
			"flip":      flipBit,
			"size":      sizeOf,
			"mode":      modeOf,
			"same":      sameFiles,
			"cut":       cutFile,
			"files":     files,
			"interrupt": interrupt,
		},
	})
}

// exitStatus runs a command and requires an exit status:
//
//	status N program args...
func exitStatus(ts *testscript.TestScript, _ bool, args []string) {
	want := parseInt(ts, args[0])
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != int(want) {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// randomFile creates a file of pseudorandom bytes, which are always the same:
//
//	random file length
func randomFile(ts *testscript.TestScript, _ bool, args []string) {
	r := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", args[0]))))
	b := make([]byte, parseInt(ts, args[1]))
	r.Read(b)
	write(ts, args[0], b)
}

// fillFile creates a file of equal bytes:
//
//	fill file length byte
func fillFile(ts *testscript.TestScript, _ bool, args []string) {
	write(ts, args[0], bytes.Repeat([]byte{byte(parseInt(ts, args[2]))}, int(parseInt(ts, args[1]))))
}

// unhexFile creates a file from the hexadecimal digits in another file:
//
//	unhex file digits
func unhexFile(ts *testscript.TestScript, _ bool, args []string) {
	b, err := hex.DecodeString(strings.Join(strings.Fields(ts.ReadFile(args[1])), ""))
	ts.Check(err)
	write(ts, args[0], b)
}

// hexOf compares bytes of a file with hexadecimal digits:
//
//	hex file offset digits
func hexOf(ts *testscript.TestScript, neg bool, args []string) {
	want, err := hex.DecodeString(args[2])
	ts.Check(err)
	got := []byte(ts.ReadFile(args[0]))[parseInt(ts, args[1]):][:len(want)]
	if bytes.Equal(got, want) == neg {
		ts.Fatalf("%s has %x at %s", args[0], got, args[1])
	}
}

// flipBit flips the lowest bit of a byte:
//
//	flip file offset
func flipBit(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	b[parseInt(ts, args[1])] ^= 1
	write(ts, args[0], b)
}

// cutFile truncates a file, or extends it by a hole:
//
//	cut file length
func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.Truncate(ts.MkAbs(args[0]), parseInt(ts, args[1])))
}

// sizeOf compares the size of a file with a length:
//
//	size file length
func sizeOf(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if (info.Size() == parseInt(ts, args[1])) == neg {
		ts.Fatalf("%s has %d bytes", args[0], info.Size())
	}
}

// modeOf compares the permissions of a file:
//
//	mode file 0600
func modeOf(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if (info.Mode().Perm() == os.FileMode(parseInt(ts, args[1]))) == neg {
		ts.Fatalf("%s has mode %v", args[0], info.Mode())
	}
}

// sameFiles compares two files, which need not be text:
//
//	same file1 file2
func sameFiles(ts *testscript.TestScript, neg bool, args []string) {
	a, b := ts.ReadFile(args[0]), ts.ReadFile(args[1])
	if (a == b) == neg {
		ts.Fatalf("%s (%d bytes) and %s (%d bytes): same is %t", args[0], len(a), args[1], len(b), a == b)
	}
}

// files compares the names in a directory, including hidden ones, with a list:
//
//	files directory name...
func files(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(args[1:], " ") {
		ts.Fatalf("%s has %q", args[0], got)
	}
}

// signals are the signals that interrupt can send.
var signals = map[string]os.Signal{
	"INT": os.Interrupt, "TERM": syscall.SIGTERM, "HUP": syscall.Signal(1), "QUIT": syscall.Signal(3), "KILL": os.Kill,
}

// interrupt runs a command in a directory, with a long standard input. When
// the command has a file open there, interrupt sends a signal and waits for the exit
// status, which is -1 if the signal ended the process:
//
//	interrupt INT|TERM|HUP|QUIT|KILL N directory softmkey args...
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[2])
	program := ""
	for _, d := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(d, args[3]); program == "" && exists(p) {
			program = p
		}
	}
	c := exec.Command(program, args[4:]...)
	c.Dir = dir
	c.Stderr = ts.Stderr()
	in, err := c.StdinPipe()
	ts.Check(err)
	// A signal that this process ignores, as under nohup, would be ignored by the command.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, signals[args[0]])
	defer signal.Stop(handled)
	ts.Check(c.Start())
	go func() { // ends with the reader
		io.Copy(in, io.LimitReader(zeros{}, 1<<30))
		in.Close()
	}()
	for {
		if writes(c.Process.Pid, dir) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	ts.Check(c.Process.Signal(signals[args[0]]))
	c.Wait()
	if got := c.ProcessState.ExitCode(); int64(got) != parseInt(ts, args[1]) {
		ts.Fatalf("exit status %d", got)
	}
}

// writes reports whether a process has a file open in a directory, with or without a
// name.
func writes(pid int, dir string) bool {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return true
	}
	descriptors := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, _ := os.ReadDir(descriptors)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(descriptors, e.Name())); err == nil && strings.HasPrefix(to, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// unnamedFiles reports whether the file system of a directory supports files without a
// name (O_TMPFILE), which are deleted with their process.
func unnamedFiles(dir string) bool {
	out, err := outfile.Create(filepath.Join(dir, "probe"), outfile.Options{})
	if err != nil {
		return false
	}
	defer out.Abandon()
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "probe") })
}

// zeros is a reader of zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	fatal.If(t, err)
	return b
}

func writeFile(t *testing.T, name string, b []byte, mode os.FileMode) {
	t.Helper()
	fatal.If(t, os.WriteFile(name, b, mode))
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func parseInt(ts *testscript.TestScript, s string) int64 {
	n, err := strconv.ParseInt(s, 0, 64)
	ts.Check(err)
	return n
}

func write(ts *testscript.TestScript, name string, b []byte) {
	ts.Check(os.WriteFile(ts.MkAbs(name), b, 0o666))
}
