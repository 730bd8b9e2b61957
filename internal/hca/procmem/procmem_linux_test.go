package procmem

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// self returns the memory of this process.
func self(t testing.TB) *Process {
	t.Helper()
	p, err := Open(os.Getpid())
	fatal.If(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestTransfersOfManyPieces(t *testing.T) {
	memory := make([]byte, 1<<16)
	for i := range memory {
		memory[i] = byte(i * 7)
	}
	var vecs []Vec
	for i := range 3*batch + 5 {
		vecs = append(vecs, Vec{Addr: addr(memory) + uint64(i*300), Buf: make([]byte, i%200)})
	}
	fatal.If(t, self(t).ReadV(vecs))
	for i, v := range vecs {
		if !bytes.Equal(v.Buf, memory[i*300:i*300+len(v.Buf)]) {
			t.Fatalf("piece %d differs", i)
		}
	}
	for i, v := range vecs {
		for j := range v.Buf {
			v.Buf[j] = byte(i)
		}
	}
	fatal.If(t, self(t).WriteV(vecs))
	for i, v := range vecs {
		if !bytes.Equal(v.Buf, memory[i*300:i*300+len(v.Buf)]) {
			t.Fatalf("piece %d was not written", i)
		}
	}
}

// TestAdjacentPieces: pieces that follow one another in the process have buffers of their
// own, wherever a call of many pieces is cut.
func TestAdjacentPieces(t *testing.T) {
	memory := make([]byte, 1<<16)
	for i := range memory {
		memory[i] = byte(i * 7)
	}
	var vecs []Vec
	for at, i := 0, 0; i < 2*batch+5; i++ {
		n := 1 + i%40
		vecs = append(vecs, Vec{Addr: addr(memory) + uint64(at), Buf: make([]byte, n)})
		if at += n; i%5 == 0 {
			at += 3 // a gap
		}
	}
	fatal.If(t, self(t).ReadV(vecs))
	want := bytes.Clone(memory)
	for i, v := range vecs {
		at := v.Addr - addr(memory)
		if !bytes.Equal(v.Buf, memory[at:][:len(v.Buf)]) {
			t.Fatalf("piece %d differs", i)
		}
		for j := range v.Buf {
			v.Buf[j] = byte(i + j)
		}
		copy(want[at:], v.Buf)
	}
	fatal.If(t, self(t).WriteV(vecs))
	if !bytes.Equal(memory, want) {
		t.Error("memory differs from the pieces that were written")
	}
}

func TestMissingMemory(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	fatal.If(t, err)
	defer unix.Munmap(m)
	fatal.If(t, unix.Mprotect(m[4096:], unix.PROT_NONE))
	buf := make([]byte, 200)
	if err := self(t).Read(addr(m)+4000, buf); err != syscall.EFAULT {
		t.Errorf("a read over the end of the mapping: %v, want EFAULT", err)
	}
	if err := self(t).Write(addr(m)+4096, buf); err != syscall.EFAULT {
		t.Errorf("a write to forbidden memory: %v, want EFAULT", err)
	}
	if err := ReadThread(1<<22+1, addr(m), buf); err != syscall.ESRCH {
		t.Errorf("a process that does not exist: %v, want ESRCH", err)
	}
}

func TestMappingAt(t *testing.T) {
	fd, err := unix.MemfdCreate("queue", 0)
	fatal.If(t, err)
	defer unix.Close(fd)
	unix.Ftruncate(fd, 1<<16)
	m, err := unix.Mmap(fd, 8192, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(m)
	var st unix.Stat_t
	unix.Fstat(fd, &st)
	got, err := self(t).MappingAt(addr(m) + 100)
	want := Mapping{Start: addr(m), End: addr(m) + 4096, Offset: 8192, Inode: st.Ino, Shared: true, Readable: true, Writable: true}
	if err != nil || got != want {
		t.Errorf("MappingAt = %+v, %v, want %+v", got, err, want)
	}
	// Kernels without PROCMAP_QUERY have the list only.
	var listed Mapping
	if err := self(t).mappings(func(m Mapping) bool { listed = m; return m.Inode == st.Ino }); err != nil || listed != want {
		t.Errorf("the list of mappings has %+v, %v, want %+v", listed, err, want)
	}
	if _, err := self(t).MappingAt(4096); err != syscall.EFAULT {
		t.Errorf("an address that is not mapped: %v", err)
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add([]byte("7f0000000000-7f0000001000 rw-s 00002000 00:01 1234  /memfd:q (deleted)"))
	f.Fuzz(func(t *testing.T, line []byte) { parseMapping(line) })
}
