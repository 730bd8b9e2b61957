package dek

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/kernel/ref"
	"github.com/softmkey/softmkey/xts"
)

// The core dump test runs this test binary again as a child process, which provisions a
// device in wrapped mode, logs in and uses it. The child aborts while all secrets are in
// use. The parent, which generated the secrets, searches the core for them.

// dumpChild is the environment variable that makes the test binary a child.
const dumpChild = "SOFTMKEY_DEK_DUMP"

// dumpSecrets holds the values that the parent passes to the child.
type dumpSecrets struct {
	kek        [32]byte
	credential [credentialSize]byte
	plainKey   [64]byte // of a DEK created from plaintext
	marker     [32]byte // not secret: the core must contain it

	wrappedCredential [credentialSize + wrapOverhead]byte
	wrappedKey        [64 + KeyTagSize + wrapOverhead]byte
}

// dumpSize is the size of dumpSecrets in the pipe.
var dumpSize = binary.Size(dumpSecrets{})

func TestMain(m *testing.M) {
	if how := os.Getenv(dumpChild); how != "" {
		beChild(how)
	}
	os.Exit(m.Run())
}

// beChild uses every kind of secret and then aborts, or waits to be dumped. It reads the
// secrets from a pipe into one buffer, which it overwrites once they are on the device,
// as the documentation asks programs to do.
func beChild(how string) {
	in := make([]byte, dumpSize)
	if _, err := io.ReadFull(os.Stdin, in); err != nil {
		panic(err)
	}
	rest := in
	next := func(n int) []byte {
		b := rest[:n]
		rest = rest[n:]
		return b
	}
	store := NewStore(Wrapped)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(store.AddKEK(1, next(32)))
	check(store.AddCredential(2, next(credentialSize)))
	plain := must(New(next(64)))
	marker := bytes.Clone(next(32))
	ctx := store.NewContext()
	login := must(ctx.NewLogin(2, 1, next(credentialSize+wrapOverhead)))
	wrapped := must(ctx.NewDEK(next(len(rest)), &DEKOptions{Login: login}))
	clear(in)

	// A memory key uses the DEKs, and transfers are in progress.
	data := make([]byte, 64<<10)
	for _, d := range []*DEK{plain, wrapped} {
		check(d.Hold())
		check(d.Check())
		var tag [KeyTagSize]byte
		if d.hasKeyTag {
			copy(tag[:], d.keyTag())
		}
		c := must(d.Acquire(tag))
		clear(tag[:])
		c.Encrypt(data, data, 520, xts.Tweak{Lo: 7})
		c.Decrypt(data, data, 512, xts.Tweak{Lo: 7})
	}
	fmt.Printf("%x\n", marker[:4]) // ready
	if how == "abort" {
		// The signal goes to this thread, which does not return: a signal of the
		// process may go to another one, while this one ends the process.
		runtime.LockOSThread()
		unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGABRT)
	}
	os.Stdin.Read(in[:1]) // waits until the parent has dumped this process
	os.Exit(0)
}

func TestNoSecretsInCoreDump(t *testing.T) {
	r := rand.NewChaCha8([32]byte{'d', 'u', 'm', 'p'})
	var s dumpSecrets
	for _, b := range [][]byte{s.kek[:], s.credential[:], s.plainKey[:], s.marker[:]} {
		r.Read(b)
	}
	key := make([]byte, 64+KeyTagSize)
	r.Read(key)
	copy(s.wrappedCredential[:], must(Wrap(s.kek[:], s.credential[:])))
	copy(s.wrappedKey[:], must(Wrap(s.kek[:], key)))
	in := must(binary.Append(nil, binary.LittleEndian, &s))

	core, notRun := dumpOf(t, in)
	if notRun != "" {
		t.Log("NOT RUN: " + notRun)
		return
	}
	if !bytes.Contains(core, s.marker[:]) {
		t.Fatal("the core does not have the child's memory: its marker is missing")
	}
	needles := map[string][][]byte{
		"KEK":                          halves(s.kek[:]),
		"round key of the KEK":         roundKeysOf(s.kek[:]),
		"credential":                   windows(s.credential[:]),
		"plaintext DEK":                halves(s.plainKey[:]),
		"round key of plaintext DEK":   append(roundKeysOf(s.plainKey[:32]), roundKeysOf(s.plainKey[32:])...),
		"wrapped DEK":                  windows(key[:64]),
		"round key of wrapped DEK":     append(roundKeysOf(key[:32]), roundKeysOf(key[32:64])...),
		"register of the unwrapping":   unwrapRegisters(t, s.kek[:], s.wrappedKey[:]),
		"register of the credential's": unwrapRegisters(t, s.kek[:], s.wrappedCredential[:]),
	}
	for name, values := range needles {
		for _, v := range values {
			if i := bytes.Index(core, v); i >= 0 {
				t.Errorf("%s: %x is in the core, at offset %#x", name, v, i)
			}
		}
	}
	t.Logf("searched %d MiB", len(core)>>20)
}

// TestRoundKeysAreFound searches for the values of the core dump test in the memory that
// must contain them: the locked memory of DEKs and of key wrap.
func TestRoundKeysAreFound(t *testing.T) {
	for _, size := range []int{32, 64} {
		key := keyOf(size, 3)
		d := must(New(key))
		defer d.Close()
		w := must(newKeyWrap("test", key[:size/2]))
		defer w.free()
		for _, k := range roundKeysOf(key[:size/2]) {
			if !bytes.Contains(d.memory.bytes(), k) {
				t.Errorf("%d: round key %x of key1 is not in the DEK's memory", size, k)
			}
			if !bytes.Contains(w.memory.bytes(), k) {
				t.Errorf("%d: round key %x of the KEK is not in the memory of key wrap", size, k)
			}
		}
		for _, k := range ref.ExpandKey(key[size/2:]) { // decryption uses no inverse of key2
			if !bytes.Contains(d.memory.bytes(), k[:]) {
				t.Errorf("%d: round key %x of key2 is not in the DEK's memory", size, k)
			}
		}
	}
}

// readCore returns the contents of a core file without pages of zeros. Those are most of
// the file: the race detector alone maps hundreds of megabytes.
func readCore(name string) (core []byte) {
	f := must(os.Open(name))
	defer f.Close()
	page, zero := make([]byte, 4096), make([]byte, 4096)
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		n, err := io.ReadFull(r, page)
		if !bytes.Equal(page[:n], zero[:n]) {
			core = append(core, page[:n]...)
		}
		if err != nil {
			break // end of the file
		}
	}
	return core
}

// dumpOf returns the core of a child with input in, or the reason why none can be made.
func dumpOf(t *testing.T, in []byte) (core []byte, notRun string) {
	// qemu-user has no process_vm_readv. A fork in it may never return, so none is made.
	if _, err := unix.ProcessVMReadv(os.Getpid(), nil, nil, 0); errors.Is(err, unix.ENOSYS) {
		return nil, "this test runs under an emulator, which has no core of its own"
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return nil, "no /proc/sys/kernel/core_pattern"
	}
	name := strings.TrimSpace(string(pattern))
	if plain := name != "" && !strings.ContainsAny(name, "|/%"); plain {
		dir := t.TempDir()
		if core, notRun := abort(t, dir, in); core != nil || notRun != "" {
			return core, notRun
		}
	}
	// The kernel passes its cores to a program, or writes none. gdb writes one that
	// excludes the same memory.
	gcore, err := exec.LookPath("gcore")
	if err != nil {
		return nil, fmt.Sprintf("the kernel makes no core file here (core_pattern %q), and there is no gcore", name)
	}
	return attach(t, gcore, in)
}

// child returns the command that runs a child in dir.
func child(how, dir string) *exec.Cmd {
	c := exec.Command(must(os.Executable()), "-test.run=^$")
	// A signal that interrupts a kernel saves the registers on the signal stack, with
	// round keys in them; doc.go says that this is not covered. Go's preemption
	// signals are turned off, so that the test does not depend on them.
	c.Env = append(os.Environ(), dumpChild+"="+how, "GOTRACEBACK=crash", "GODEBUG=asyncpreemptoff=1")
	c.Dir = dir
	return c
}

// abort returns the core of a child that aborts in dir, nil if the kernel wrote none, or
// the reason why the child cannot run.
func abort(t *testing.T, dir string, in []byte) (core []byte, notRun string) {
	var limit unix.Rlimit
	fatal.If(t, unix.Getrlimit(unix.RLIMIT_CORE, &limit))
	if limit.Max != unix.RLIM_INFINITY {
		return nil, ""
	}
	// The child inherits the limit.
	raised := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	fatal.If(t, unix.Setrlimit(unix.RLIMIT_CORE, &raised))
	defer unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	c := child("abort", dir)
	c.Stdin = bytes.NewReader(in)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(out.String(), "SIGABRT") {
		t.Fatalf("the child did not abort: %v\n%s", err, out.Bytes())
	}
	names, err := filepath.Glob(filepath.Join(dir, "core*"))
	if err != nil || len(names) == 0 {
		return nil, ""
	}
	return readCore(names[0]), ""
}

// attach returns the core that gcore writes for a waiting child.
func attach(t *testing.T, gcore string, in []byte) (core []byte, notRun string) {
	dir := t.TempDir()
	c := child("wait", dir)
	stdin := must(c.StdinPipe())
	stdout := must(c.StdoutPipe())
	c.Stderr = os.Stderr
	fatal.If(t, c.Start())
	defer c.Wait()
	defer stdin.Close()
	must(stdin.Write(in))
	ready := make([]byte, 9)
	if _, err := io.ReadFull(stdout, ready); err != nil {
		t.Fatal("the child was not ready: ", err)
	}
	prefix := filepath.Join(dir, "core")
	out, err := exec.Command(gcore, "-o", prefix, fmt.Sprint(c.Process.Pid)).CombinedOutput()
	if err != nil {
		return nil, fmt.Sprintf("gcore: %v: %s", err, bytes.TrimSpace(out))
	}
	return readCore(fmt.Sprintf("%s.%d", prefix, c.Process.Pid)), ""
}

// halves divides a key into parts of 16 bytes, the size of a register and of an AES
// block.
func halves(key []byte) (v [][]byte) {
	for i := 0; i+16 <= len(key); i += 16 {
		v = append(v, key[i:i+16])
	}
	return v
}

// windows divides a value into parts of 8 bytes, the unit of key wrap.
func windows(value []byte) (v [][]byte) {
	for i := 0; i+8 <= len(value); i += 8 {
		v = append(v, value[i:i+8])
	}
	return v
}

// roundKeysOf returns the round keys of an AES key for both directions.
func roundKeysOf(key []byte) (v [][]byte) {
	keys := ref.ExpandKey(key)
	for i, k := range keys {
		v = append(v, k[:])
		if i > 0 && i < len(keys)-1 {
			inverse := ref.InverseMixColumns(k)
			v = append(v, inverse[:])
		}
	}
	return v
}

// unwrapRegisters returns all values of the registers A and R[i] of RFC 3394, except for
// the first ones: they are the wrapped key itself, which is not secret.
func unwrapRegisters(t *testing.T, kek, wrapped []byte) (v [][]byte) {
	t.Helper()
	c := must(aes.NewCipher(kek))
	a := bytes.Clone(wrapped[:8])
	r := bytes.Clone(wrapped[8:])
	n := len(r) / 8
	for j := 5; j >= 0; j-- {
		for i := n; i >= 1; i-- {
			var b [16]byte
			binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(a)^uint64(n*j+i))
			copy(b[8:], r[8*(i-1):])
			c.Decrypt(b[:], b[:])
			copy(a, b[:8])
			copy(r[8*(i-1):], b[8:])
			v = append(v, bytes.Clone(b[8:]))
			if i > 1 || j > 0 { // the last value is the initial value of the RFC
				v = append(v, bytes.Clone(a))
			}
		}
	}
	if hex.EncodeToString(a) != "a6a6a6a6a6a6a6a6" {
		t.Fatal("the test's own unwrapping is wrong")
	}
	return v
}
