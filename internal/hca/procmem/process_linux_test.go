package procmem

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// eachFile runs a test with every file that can tell whether an address space exists.
func eachFile(t *testing.T, test func(t *testing.T, open func(pid int) (*Process, error))) {
	t.Run("pagemap", func(t *testing.T) { test(t, Open) })
	t.Run("mem", func(t *testing.T) {
		test(t, func(pid int) (*Process, error) { return open(pid, pid, "mem", "nothing") })
	})
}

// TestEndedProcess ends a process and starts another one with its number, where the system allows
// that. The memory of the first process is not that of the second.
func TestEndedProcess(t *testing.T) { eachFile(t, testEndedProcess) }

func testEndedProcess(t *testing.T, open func(pid int) (*Process, error)) {
	first := sleeper(t)
	p, err := open(first.Process.Pid)
	fatal.If(t, err)
	defer p.Close()
	pid, b := p.Pid(), make([]byte, 16)
	at := someAddress(t, pid)
	fatal.If(t, p.Read(at, b))
	first.Process.Kill()
	first.Wait()
	check := func(addr uint64) {
		t.Helper()
		if err := p.Read(addr, b); err != syscall.ESRCH {
			t.Errorf("reading the memory of an ended process: %v, want ESRCH", err)
		}
		if err := p.Write(addr, b); err != syscall.ESRCH {
			t.Errorf("writing the memory of an ended process: %v, want ESRCH", err)
		}
		if _, err := p.MappingAt(addr); err == nil {
			t.Error("an ended process has a mapping")
		}
	}
	check(at)
	for range 1000 {
		if os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0) != nil {
			t.Skip("NOT RUN: only root may choose the number of a process")
		}
		if second := sleeper(t); second.Process.Pid == pid {
			at := someAddress(t, pid)
			fatal.If(t, ReadThread(pid, at, b))
			check(at)
			return
		} else {
			second.Process.Kill()
			second.Wait()
		}
	}
	t.Skip("NOT RUN: other processes take the number")
}

// TestExecutedProgram lets a process execute a program: it keeps its number and loses its memory.
func TestExecutedProgram(t *testing.T) { eachFile(t, testExecutedProgram) }

func testExecutedProgram(t *testing.T, open func(pid int) (*Process, error)) {
	c := exec.Command("sh", "-c", "read x; exec sleep 1000")
	in, err := c.StdinPipe()
	fatal.If(t, err)
	fatal.If(t, c.Start())
	defer c.Wait()
	defer c.Process.Kill()
	name := func() string {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.Process.Pid))
		return string(bytes.TrimSpace(comm))
	}
	await(t, func() bool { return name() == "sh" })
	p, err := open(c.Process.Pid)
	fatal.If(t, err)
	defer p.Close()
	if !p.Alive() {
		t.Fatal("the shell does not live")
	}
	in.Write([]byte("\n"))
	await(t, func() bool { return name() == "sleep" })
	b, at := make([]byte, 16), someAddress(t, p.Pid())
	fatal.If(t, ReadThread(p.Pid(), at, b))
	if err := p.Read(at, b); err != syscall.ESRCH {
		t.Errorf("reading the memory before execve: %v, want ESRCH", err)
	}
	if err := p.Write(at, b); err != syscall.ESRCH {
		t.Errorf("writing the memory before execve: %v, want ESRCH", err)
	}
	if n := p.AddressOf(1); n != 0 {
		t.Errorf("a file is mapped at %#x", n)
	}
}

// TestEndStopsTransfers calls End for a process whose address space lives on in another one. Later
// transfers fail.
func TestEndStopsTransfers(t *testing.T) {
	p := self(t)
	b := make([]byte, 16)
	p.End()
	if err := p.Read(addr(b), make([]byte, 16)); err != syscall.ESRCH {
		t.Errorf("reading: %v, want ESRCH", err)
	}
	if err := p.Write(addr(b), make([]byte, 16)); err != syscall.ESRCH {
		t.Errorf("writing: %v, want ESRCH", err)
	}
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	fatal.If(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

// someAddress returns the first address of the stack of a process.
func someAddress(t *testing.T, pid int) (at uint64) {
	t.Helper()
	await(t, func() bool {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		for line := range bytes.Lines(maps) {
			if m, ok := parseMapping(line); ok && bytes.Contains(line, []byte("[stack]")) {
				at = m.Start
			}
		}
		return at != 0
	})
	return at
}

// await waits until something is true.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

func taskFolder(pid int) string { return fmt.Sprintf("/proc/%d/task", pid) }

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// stateOf returns the state of a thread as a letter, 0 if it has ended.
func stateOf(pid, thread int) byte {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, thread))
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return 0
	}
	return stat[i+2]
}
