//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/sig"
)

// nbdWriter is a client of softmkey nbd that has one write in flight at a time.
type nbdWriter struct {
	net.Conn
	cookie uint64
}

// dialNBD connects by the oldest form of the handshake that is left, NBD_OPT_EXPORT_NAME.
func dialNBD(socket string) (*nbdWriter, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	hello := make([]byte, 18)
	if _, err = io.ReadFull(c, hello); err == nil {
		b := binary.BigEndian.AppendUint32(nil, 3) // fixed newstyle, no zeroes
		b = append(b, "IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"...)
		if _, err = c.Write(b); err == nil {
			_, err = io.ReadFull(c, make([]byte, 10))
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &nbdWriter{Conn: c}, nil
}

// write writes p and waits for the reply.
func (c *nbdWriter) write(p []byte, off int64) error {
	c.cookie++
	b := binary.BigEndian.AppendUint32(nil, 0x25609513)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint64(b, c.cookie)
	b = binary.BigEndian.AppendUint64(b, uint64(off))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
	if _, err := c.Write(append(b, p...)); err != nil {
		return err
	}
	var reply [16]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return err
	}
	if errno := binary.BigEndian.Uint32(reply[4:]); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// self returns a name under which the test binary is softmkey: TestMain runs the command under its name.
func self(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	fatal.If(t, err)
	name := filepath.Join(t.TempDir(), "softmkey")
	fatal.If(t, os.Symlink(program, name))
	return name
}

// startNBD starts a server and waits until it listens.
func startNBD(t *testing.T, program, image, socket string, flags ...string) *exec.Cmd {
	t.Helper()
	return startNBDTo(t, os.Stderr, program, image, socket, flags...)
}

// startNBDTo is startNBD with another standard error.
func startNBDTo(t *testing.T, errs io.Writer, program, image, socket string, flags ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(program, append([]string{"nbd", "--sig", "t10dif", "--socket", socket, image}, flags...)...)
	c.Stderr = errs
	out, err := c.StdoutPipe()
	fatal.If(t, err)
	fatal.If(t, c.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return c
}

// TestNBDUnread has a standard error that nobody reads. Thousands of requests that meet a bad block, each with a line,
// are answered, and the server ends after a signal.
func TestNBDUnread(t *testing.T) {
	dir := t.TempDir()
	image, socket := filepath.Join(dir, "image"), filepath.Join(dir, "socket")
	const blocks = 4096
	fatal.If(t, os.WriteFile(image, bytes.Repeat([]byte("bad block"), blocks*520/9+1)[:blocks*520], 0o600))
	unread, errs, err := os.Pipe()
	fatal.If(t, err)
	defer unread.Close()
	server := startNBDTo(t, errs, self(t), image, socket)
	defer server.Process.Kill()
	errs.Close()
	c, err := dialNBD(socket)
	fatal.If(t, err)
	defer c.Close()
	for n := range int64(blocks) {
		if err := c.write([]byte{1}, n*512); !errors.Is(err, syscall.EIO) {
			t.Fatalf("block %d: %v", n, err)
		}
	}
	fatal.If(t, server.Process.Signal(os.Interrupt))
	var ended *exec.ExitError
	if err := server.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitFailed {
		t.Errorf("the end of a server whose last lines nobody takes: %v", err)
	}
}

// TestNBDKilled kills servers while ten clients write. Every block must then have the content of the last
// write that was answered, or of the one that was in flight; or its field is bad, which at most one block of
// each write in flight may have, and with separate fields each block of it.
func TestNBDKilled(t *testing.T) {
	t.Run("one file", func(t *testing.T) { testNBDKilled(t, false) })
	t.Run("separate fields", func(t *testing.T) { testNBDKilled(t, true) })
}

func testNBDKilled(t *testing.T, separate bool) {
	rounds := 3
	if os.Getenv("SOFTMKEY_LONG") != "" {
		rounds = 100
	}
	const clients, region = 10, 300 << 10
	format := sig.Format{Type: sig.T10DIF}
	block, stride := format.Block(), format.Stride()
	program, dir := self(t), t.TempDir()
	name, socket := filepath.Join(dir, "image"), filepath.Join(dir, "s")
	model := make([]byte, clients*region) // what the clients know
	image := make([]byte, format.StreamLen(int64(len(model))))
	if _, err := format.Protect(image, model); err != nil {
		t.Fatal(err)
	}
	fields := filepath.Join(dir, "fields")
	var flags []string
	if separate {
		flags = []string{"--metadata", fields}
	}
	store := func(image []byte) {
		t.Helper()
		if separate {
			var all []byte
			data := make([]byte, 0, len(model))
			for b := range slices.Chunk(image, stride) {
				data, all = append(data, b[:block]...), append(all, b[block:]...)
			}
			writeFile(t, fields, all, 0o666)
			image = data
		}
		writeFile(t, name, image, 0o666)
	}
	load := func() (image []byte) {
		t.Helper()
		data := readFile(t, name)
		if !separate {
			return data
		}
		all, err := os.ReadFile(fields)
		if err != nil || len(data) != len(model) || len(all) != len(data)/block*(stride-block) {
			t.Fatalf("%d and %d bytes: %v", len(data), len(all), err)
		}
		for i := range len(data) / block {
			image = append(append(image, data[i*block:][:block]...), all[i*(stride-block):][:stride-block]...)
		}
		return image
	}
	store(image)
	seed := rand.Uint64()
	inFlight, damaged := 0, 0
	for round := range rounds {
		server := startNBD(t, program, name, socket, flags...)
		var answered atomic.Int64
		enough := rand.New(rand.NewPCG(seed, uint64(round))).Int64N(300)
		kill := sync.OnceFunc(func() { _ = server.Process.Kill() })
		var flying [clients]struct {
			off int64
			p   []byte
		}
		var all sync.WaitGroup
		for n := range clients {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(round*clients+n)))
				c, err := dialNBD(socket)
				if err != nil {
					return // another client has let the server be killed already
				}
				defer c.Close()
				for {
					at := r.Int64N(region - 512)
					p := bytes.Repeat([]byte{byte(r.Uint32()), byte(r.Uint32()), byte(n)}, 200<<10/3)
					p = p[:min(512+r.Int64N(200<<10-1024), region-at)]
					at += int64(n) * region
					flying[n].off, flying[n].p = at, p
					if err := c.write(p, at); err != nil {
						if errors.As(err, new(syscall.Errno)) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("client %d: %v", n, err)
						}
						return
					}
					copy(model[at:], p)
					flying[n].p = nil
					if answered.Add(1) > enough {
						kill()
					}
				}
			})
		}
		all.Wait()
		kill()
		_ = server.Wait() // it was killed
		image := load()
		for n, w := range flying {
			fresh := bytes.Clone(model[n*region:][:region])
			if w.p != nil {
				inFlight++
				copy(fresh[w.off-int64(n)*region:], w.p)
			}
			bad := 0
			for i := n * region / block; i < (n+1)*region/block; i++ {
				data := image[i*stride:][:block]
				old := model[i*block:][:block]
				after := fresh[i*block-n*region:][:block]
				touched := w.p != nil && int64(i*block) < w.off+int64(len(w.p)) && int64((i+1)*block) > w.off
				switch {
				case format.From(uint64(i)).Verify(image[i*stride:][:stride]) != nil && touched:
					bad++
					copy(data, old) // for the next round
					fatal.If(t, format.From(uint64(i)).Generate(image[i*stride:][:stride]))
				case format.From(uint64(i)).Verify(image[i*stride:][:stride]) != nil:
					t.Fatalf("seed %d round %d: block %d is bad, and no write of it was in flight", seed, round, i)
				case bytes.Equal(data, old):
				case touched && bytes.Equal(data, after):
					copy(old, after)
				default:
					t.Fatalf("seed %d round %d: block %d has neither its old nor its new content (in flight: %t)", seed, round, i, touched)
				}
			}
			if bad > 1 && !separate {
				t.Errorf("seed %d round %d client %d: %d bad blocks after one write", seed, round, n, bad)
			}
			damaged += bad
		}
		store(image)
	}
	server := startNBD(t, program, name, socket, flags...)
	fatal.If(t, server.Process.Signal(syscall.SIGTERM))
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	t.Logf("seed %d: %d kills, %d writes in flight, %d bad blocks", seed, rounds, inFlight, damaged)
}
