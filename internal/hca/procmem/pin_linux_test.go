package procmem

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// eachList runs a test with and without the kernel's query of single mappings (Linux 6.11).
func eachList(t *testing.T, test func(t *testing.T, p *Process)) {
	t.Run("query", func(t *testing.T) { test(t, self(t)) })
	t.Run("list", func(t *testing.T) {
		p := self(t)
		p.listOnly = true
		test(t, p)
	})
}

// TestPinnable checks ranges against the rules of get_user_pages, by which the kernel pins memory.
func TestPinnable(t *testing.T) { eachList(t, testPinnable) }

func testPinnable(t *testing.T, p *Process) {
	const page = 4096
	anonymous := func(pages, prot int) []byte {
		b, err := unix.Mmap(-1, 0, pages*page, prot, unix.MAP_PRIVATE|unix.MAP_ANON)
		fatal.If(t, err)
		t.Cleanup(func() { unix.Munmap(b) })
		return b
	}
	protected := func(prot int) []byte { // the second of three pages has other rights
		b := anonymous(3, unix.PROT_READ|unix.PROT_WRITE)
		fatal.If(t, unix.Mprotect(b[page:2*page], prot))
		return b
	}
	hole := anonymous(3, unix.PROT_READ|unix.PROT_WRITE)
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(addr(hole))+page, page, 0); errno != 0 {
		t.Fatal(errno)
	}
	fd, err := unix.MemfdCreate("short", 0)
	fatal.If(t, err)
	defer unix.Close(fd)
	unix.Ftruncate(fd, page)
	short, err := unix.Mmap(fd, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(short)
	shut, readOnly, writeOnly := protected(unix.PROT_NONE), protected(unix.PROT_READ), protected(unix.PROT_WRITE)
	two := protected(unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC)
	for _, v := range []struct {
		name         string
		addr, length uint64
		write        bool
		refuse       string
	}{
		{name: "two mappings", addr: addr(two) + 7, length: 3*page - 7, write: true},
		{name: "hole", addr: addr(hole), length: 3 * page, write: true, refuse: "nothing is mapped"},
		{name: "hole, reading", addr: addr(hole), length: 3 * page, refuse: "nothing is mapped"},
		{name: "before the hole", addr: addr(hole), length: page, write: true},
		{name: "one byte into the hole", addr: addr(hole), length: page + 1, refuse: "nothing is mapped"},
		{name: "no rights", addr: addr(shut), length: 3 * page, refuse: "not readable (--p)"},
		{name: "no rights, writing", addr: addr(shut) + page, length: 1, write: true, refuse: "not writable (--p)"},
		{name: "read-only", addr: addr(readOnly), length: 3 * page},
		{name: "read-only, writing", addr: addr(readOnly), length: 3 * page, write: true, refuse: "not writable (r-p)"},
		{name: "write-only, writing", addr: addr(writeOnly) + page, length: page, write: true},
		{name: "write-only", addr: addr(writeOnly) + page, length: page, refuse: "not readable (-wp)"},
		{name: "file", addr: addr(short), length: page, write: true},
		{name: "beyond the file", addr: addr(short), length: 2 * page, write: true, refuse: "beyond the end of its file"},
		{name: "address 0", addr: 0, length: page, refuse: "nothing is mapped at 0x0"},
		{name: "kernel", addr: 0xffffffff81000000, length: page, refuse: "nothing is mapped"},
		{name: "last address", addr: 1<<64 - page - 1, length: page, refuse: "nothing is mapped"},
	} {
		err := p.Pinnable(v.addr, v.length, v.write)
		switch {
		case v.refuse == "" && err != nil:
			t.Errorf("%s: %v", v.name, err)
		case v.refuse != "" && (err == nil || !strings.Contains(err.Error(), v.refuse) || !errors.Is(err, syscall.EFAULT)):
			t.Errorf("%s: %v, want EFAULT with %q", v.name, err, v.refuse)
		}
	}
}

// TestPinnableManyMappings checks a range of more mappings than one call probes.
func TestPinnableManyMappings(t *testing.T) { eachList(t, testPinnableManyMappings) }

func testPinnableManyMappings(t *testing.T, p *Process) {
	const page, pages = 4096, 5*batch + 3
	b, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	fatal.If(t, err)
	defer unix.Munmap(b)
	for i := 0; i < pages; i += 2 {
		fatal.If(t, unix.Mprotect(b[i*page:][:page], unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC))
	}
	if err := p.Pinnable(addr(b), uint64(len(b)), true); err != nil {
		t.Error(err)
	}
	unix.Mprotect(b[(pages-2)*page:][:page], unix.PROT_READ)
	if err := p.Pinnable(addr(b), uint64(len(b)), true); err == nil {
		t.Error("the last but one page is read-only, and was not noticed")
	}
}

// endedLeader is set in a process whose first thread ends while others live.
const endedLeader = "PROCMEM_TEST_ENDED_LEADER"

func init() {
	if os.Getenv(endedLeader) == "" {
		return
	}
	go func() { select {} }()
	// init runs on the first thread. SYS_EXIT ends this thread only.
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// TestEndedLeader reads and writes the memory of a process whose first thread has ended, opened
// before and after that, and by the number of a thread that ends later.
func TestEndedLeader(t *testing.T) {
	exe, err := os.Executable()
	fatal.If(t, err)
	process, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{Env: append(os.Environ(), endedLeader+"=1"), Files: []*os.File{nil, nil, os.Stderr}})
	fatal.If(t, err)
	defer process.Wait()
	defer process.Kill()
	await(t, func() bool { return stateOf(process.Pid, process.Pid) == 'Z' })
	var living int
	await(t, func() bool {
		tasks, _ := os.ReadDir(taskFolder(process.Pid))
		for _, task := range tasks {
			if id := atoi(task.Name()); id != process.Pid && stateOf(process.Pid, id) != 'Z' {
				living = id
			}
		}
		return living != 0
	})
	p, err := OpenThread(process.Pid, living)
	fatal.If(t, err)
	defer p.Close()
	var at uint64
	p.mappings(func(m Mapping) bool {
		if m.Readable && m.Writable {
			at = m.Start
		}
		return at != 0
	})
	if !p.Alive() || at == 0 {
		t.Fatalf("alive: %v, writable memory at %#x", p.Alive(), at)
	}
	b := make([]byte, 64)
	if err := p.Read(at, b); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := p.Write(at, b); err != nil {
		t.Errorf("writing: %v", err)
	}
	if err := p.Pinnable(at, 64, true); err != nil {
		t.Error(err)
	}
	// The thread that was found ends, so that its number says nothing any more.
	file, err := os.Open(taskFolder(process.Pid) + "/" + itoa(living) + "/comm")
	fatal.If(t, err)
	file.Close()
	p.other.Store(&thread{id: living, file: file, fd: -1})
	if err := p.Read(at, b); err != nil {
		t.Errorf("reading after the end of a thread: %v", err)
	}
	process.Kill()
	process.Wait()
	if err := p.Read(at, b); err != syscall.ESRCH {
		t.Errorf("reading the memory of an ended process: %v, want ESRCH", err)
	}
}
