//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestRunWaits lets a request wait for a page while another program opens the device, transfers
// data and closes it. Only then is the page supplied, and the request must succeed.
func TestRunWaits(t *testing.T) {
	waits, neighbour := buildC(t, "waits", "waits.c"), buildC(t, "neighbour", "neighbour.c")
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(7))
	before := l.footprint()
	for _, mode := range []string{"source", "target", "read", "file", "register"} {
		t.Run(mode, func(t *testing.T) {
			l.t = t
			file := filepath.Join(t.TempDir(), "waits")
			mapped, end := "", func() {}
			if mode == "file" || mode == "register" {
				mapped, end = serveFile(t, file)
			}
			out, status := l.do(fmt.Sprintf(`(%[1]s %[2]s %[3]s %[5]s & while [ ! -e %[3]s.started ] && [ -e /proc/$!/exe ]; do sleep 0.01; done; `+
				`timeout 60 %[4]s 50; other=$?; touch %[3]s.go; wait $! || exit $?; exit $other)`, waits, mode, file, neighbour, mapped))
			end()
			if status == 77 {
				t.Skip(out)
			}
			if status != 0 {
				t.Errorf("exit status %d: %s", status, out)
			}
			settle(t, mode, before, true)
		})
	}
	l.t = t
	l.end()
	settle(t, "the run", start, true)
}

// serveFile mounts a FUSE file system with one file of 2 MiB. It returns the file's path and a
// function that ends the server. When a file NAME.stop exists, serveFile stops the server by a
// signal and removes that file; when NAME.go exists, the server continues.
func serveFile(t *testing.T, name string) (mapped string, end func()) {
	t.Helper()
	dir := t.TempDir()
	source, image, mount := filepath.Join(dir, "source"), filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	for _, d := range []string{source, mount} {
		fatal.If(t, os.Mkdir(d, 0o755))
	}
	content := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{1}).Read(content)
	writeFile(t, filepath.Join(source, "file"), content, 0o644)
	if out, err := exec.Command("mksquashfs", source, image, "-quiet", "-no-progress").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v: %s", err, out)
	}
	server := exec.Command("squashfuse", "-f", image, mount)
	fatal.If(t, server.Start())
	ended, finish := make(chan struct{}), make(chan struct{})
	go func() {
		server.Wait()
		close(ended)
	}()
	// until waits for a file. It returns false if the server or the test ends first.
	until := func(path string) bool {
		for !exists(path) {
			select {
			case <-ended:
				return false
			case <-finish:
				return false
			case <-time.After(time.Millisecond):
			}
		}
		return true
	}
	mapped = filepath.Join(mount, "file")
	if !until(mapped) {
		t.Skip("NOT RUN: squashfuse cannot mount a file system here")
	}
	conducted := make(chan struct{})
	go func() {
		defer close(conducted)
		if stop := name + ".stop"; until(stop) {
			server.Process.Signal(syscall.SIGSTOP)
			os.Remove(stop)
			until(name + ".go")
		}
		server.Process.Signal(syscall.SIGCONT)
	}()
	end = sync.OnceFunc(func() {
		close(finish)
		<-conducted
		server.Process.Signal(syscall.SIGTERM) // the server unmounts
		<-ended
	})
	t.Cleanup(end)
	return mapped, end
}
