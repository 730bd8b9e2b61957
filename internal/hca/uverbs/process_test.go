//go:build linux

package uverbs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// otherProcess makes the ioctls of a program as another process that has its descriptor.
type otherProcess struct {
	*program
	pid int
}

func (o otherProcess) Process() int                      { return o.pid }
func (o otherProcess) Memory() (*procmem.Process, error) { return procmem.Open(o.pid) }

// stackOf returns the first address of a process's stack, which differs between processes.
func stackOf(t *testing.T, pid int) uint64 {
	t.Helper()
	for deadline := time.Now().Add(patience * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		for line := range bytes.Lines(maps) {
			if bytes.Contains(line, []byte("[stack]")) {
				from, _, _ := strings.Cut(string(line), "-")
				if at, err := strconv.ParseUint(from, 16, 64); err == nil {
					return at
				}
			}
		}
	}
	t.Fatal("the process has no stack")
	return 0
}

// TestMemoryOfOtherProcess registers memory in a process that got the descriptor from the one that
// opened the device. The region refers to that process's own memory, for as long as it lives.
func TestMemoryOfOtherProcess(t *testing.T) {
	p := newProgram(t, newDevice(t))
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	other := otherProcess{p, c.Process.Pid}
	at := stackOf(t, other.pid)
	var b [8]byte
	if p.file.mem.Read(at, b[:]) == nil {
		t.Skip("NOT RUN: this process has memory at the other one's address")
	}
	register := func(c Caller) syscall.Errno {
		in := make(fields, 40)
		in.put64(8, at)
		in.put64(16, 4096)
		in.put64(24, at)
		in.put32(32, p.pd())
		in.put32(36, 7)
		_, errno := p.callAs(c, objDevice, deviceInvokeWrite, num(writeCmd, cmdRegMR), p.in(coreIn, in), p.out(coreOut, 12))
		return errno
	}
	if errno := register(p); errno != syscall.EFAULT {
		t.Errorf("registering an address of another process: %v, want EFAULT", errno)
	}
	if errno := register(other); errno != 0 {
		t.Errorf("registering in the process that has the memory: %v", errno)
	}
	m := p.file.others[other.pid]
	if m == nil || m.Read(at, b[:]) != nil {
		t.Fatal("the memory of the other process is not known")
	}
	c.Process.Kill()
	c.Wait()
	if err := m.Read(at, b[:]); err != syscall.ESRCH {
		t.Errorf("the memory of the other process after its end: %v, want ESRCH", err)
	}
	if errno := register(other); errno == 0 {
		t.Error("an ended process registers memory")
	}
}

// TestOwnerEnded: nothing of the program's memory is reached after its end.
func TestOwnerEnded(t *testing.T) {
	p := newProgram(t, newDevice(t))
	at := p.alloc(8)
	p.file.OwnerEnded()
	if err := p.file.mem.Write(at, make([]byte, 8)); err != syscall.ESRCH {
		t.Errorf("writing: %v, want ESRCH", err)
	}
	if view := p.file.mem.Map(at, 8); view != nil {
		t.Error("a view of an ended program's memory")
	}
}
