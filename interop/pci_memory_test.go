package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// guestMemory is the memory of a guest.
type guestMemory struct {
	t *testing.T
	f *os.File
}

// memory opens the memory that QEMU or User-mode Linux shares with the adapter.
func (g *pciGuest) memory() guestMemory {
	g.t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.pid))
	check(g.t, err)
	for _, fd := range fds {
		name, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(name, "/memfd:memory-backend-memfd") && !strings.HasPrefix(name, "/dev/shm/") {
			continue
		}
		f, err := os.OpenFile(fd, os.O_RDWR, 0)
		check(g.t, err)
		g.t.Cleanup(func() { f.Close() })
		return guestMemory{g.t, f}
	}
	g.t.Fatalf("%s: no memory among %q", g.name, fds)
	return guestMemory{}
}

// pages returns the offsets of the pages that begin with prefix.
func (m guestMemory) pages(prefix []byte) map[int64]bool {
	m.t.Helper()
	const page, seekData = 4096, 3
	found, chunk := make(map[int64]bool), make([]byte, 256*page)
	for next := int64(0); ; {
		at, err := syscall.Seek(int(m.f.Fd()), next, seekData)
		if err == syscall.ENXIO { // only a hole is left
			return found
		} else if err != nil {
			m.t.Fatal(err)
		}
		n, err := m.f.ReadAt(chunk, at)
		if err != nil && err != io.EOF {
			m.t.Fatal(err)
		}
		for off := 0; off+page <= n; off += page {
			if bytes.HasPrefix(chunk[off:], prefix) {
				found[at+int64(off)] = true
			}
		}
		next = at + int64(n)
	}
}

// appears waits until there is one more page with a prefix than those known, and returns its offset.
func (m guestMemory) appears(what string, prefix []byte, known map[int64]bool) int64 {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for at := range m.pages(prefix) {
			if !known[at] {
				return at
			}
		}
	}
	m.t.Fatalf("%s did not appear in the memory", what)
	return 0
}

// flip changes a byte.
func (m guestMemory) flip(at int64) {
	m.t.Helper()
	var b [1]byte
	if _, err := m.f.ReadAt(b[:], at); err != nil {
		m.t.Fatal(err)
	}
	b[0] ^= 0x20
	m.write(at, b[:])
}

// write writes bytes.
func (m guestMemory) write(at int64, b []byte) {
	m.t.Helper()
	if _, err := m.f.WriteAt(b, at); err != nil {
		m.t.Fatal(err)
	}
}

// tuplesOf returns the tuples of T10-DIF type 1 that Linux's host makes for blocks from the first of
// a disk on.
func tuplesOf(data []byte, block int) (tuples []byte) {
	for i := range len(data) / block {
		tuples = binary.BigEndian.AppendUint16(tuples, crc16T10DIF(data[i*block:][:block]))
		tuples = append(tuples, 0, 0) // the application tag
		tuples = binary.BigEndian.AppendUint32(tuples, uint32(i))
	}
	return tuples
}

// TestPCINVMeTarget damages blocks and tuples in the memory of the kernel's NVMe target, while an I/O
// passes it. In a write the target's adapter has already checked and stored them, and the disk
// finds the damage: the host gets the error that Linux's target makes of it, which forbids retries.
// In a read the disk has delivered them. The target's adapter finds the damage when it sends
// them, and the host's when they arrive; the block layer of the host tries again. Damaged
// application tags stay unnoticed, because neither Linux nor its disk checks them.
func TestPCINVMeTarget(t *testing.T) {
	withoutUML(t, "its kernel cannot hold a disk's writes")
	eachBlock(t, func(t *testing.T, block int) {
		nvme := nvmeGuest(block, "ordered")
		eachKernel(t, nvme, func(t *testing.T, softmkey, dir string, image guest.Image) {
			testPCINVMeTarget(t, softmkey, dir, image, block)
		})
	})
}

func testPCINVMeTarget(t *testing.T, softmkey, dir string, image guest.Image, block int) {
	cable := "unix:" + filepath.Join(dir, "cable")
	// Pages that are free are zero, so that only those in use are found.
	target := startPCI(t, softmkey, dir, "target", cable, "pci.addr=10.94.0.1 pci.peer=10.94.0.2 pci.role=target oops=panic init_on_free=1", image)
	host := startPCI(t, softmkey, dir, "host", cable, "pci.addr=10.94.0.2 pci.peer=10.94.0.1 pci.role=host oops=panic", image)
	target.lines("pci: obeys")
	host.lines("pci: obeys")
	memory := target.memory()
	for _, way := range []string{"write", "read"} {
		for _, part := range []string{"data", "guard", "app", "ref"} {
			name := part + "-" + way
			host.order("make-"+name, "make "+name)
			data := bytes.NewBufferString(name + "\n")
			for i := 1; data.Len() < 8*block; i++ {
				fmt.Fprintln(data, i)
			}
			blocks := data.Bytes()[:8*block]
			tuples := tuplesOf(blocks, block)

			if way == "write" {
				target.order("hold-"+name, "hold")
			} else {
				host.order("put-"+name, "put /tmp/"+name)
				target.order("slow-"+name, "slow 1250")
			}
			knownData, knownTuples := memory.pages(blocks[:512]), memory.pages(tuples)
			host.begin(name, map[string]string{"write": "put", "read": "get"}[way]+" /tmp/"+name)
			dataAt, tuplesAt := memory.appears("data", blocks[:512], knownData), memory.appears("tuples", tuples, knownTuples)
			memory.flip(map[string]int64{"data": dataAt + 100, "guard": tuplesAt, "app": tuplesAt + 2, "ref": tuplesAt + 7}[part])
			if way == "write" {
				target.order("release-"+name, "release")
			}
			if ok, want := host.succeeded(name), way == "read" || part == "app"; ok != want {
				t.Errorf("%s: succeeded: %v, want %v", name, ok, want)
			}
			if way == "read" {
				target.order("fast-"+name, "slow 1")
			}
		}
	}
	for _, row := range []struct {
		g    *pciGuest
		says string
	}{
		{target, "kernel: .*protection error, dev sda.*WRITE"}, {host, "kernel: .*I/O error, dev nvme0.*WRITE"},
		{target, "kernel: .*nvmet_rdma: PI error found"}, {host, "kernel: .*nvme_rdma: PI error found"},
	} {
		fmt.Fprintln(row.g.typed, "end")
		said := row.g.lines("pci: ready")
		if n := len(regexp.MustCompile(row.says).FindAllString(said, -1)); n != 3 {
			t.Errorf("%s: %d of %q, want 3:\n%s", row.g.name, n, row.says, said)
		}
	}
}
