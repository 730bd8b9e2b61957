//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is an interactive shell on a terminal of its own.
type terminal struct {
	t      *testing.T
	master *os.File
	seen   string // output that await has not passed yet
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	need(t, "bash")
	master, slave := openTerminal(t)
	defer slave.Close()
	unix.SetNonblock(int(master.Fd()), true) // Fd has changed it
	c := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
	c.Env = append(os.Environ(), "PS1=ready> ", "TERM=dumb")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return &terminal{t: t, master: master}
}

// enter types text.
func (x *terminal) enter(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// await waits for a part of the output.
func (x *terminal) await(part string) {
	x.t.Helper()
	if err := x.find(part, 30*time.Second); err != nil {
		x.t.Fatalf("no %q: %v: %q", part, err, x.seen)
	}
}

// ask types text, and types it again after each limit until a part appears in the output. The first
// text may be lost, because a program to which a stop signal was sent can still read input that is
// meant for the shell.
func (x *terminal) ask(text, part string, limit time.Duration) {
	x.t.Helper()
	var err error
	for range 30 * time.Second / limit {
		x.enter(text)
		if err = x.find(part, limit); err == nil {
			return
		}
	}
	x.t.Fatalf("no %q: %v: %q", part, err, x.seen)
}

// find passes over the output up to and including part. It returns an error if part does
// not appear in time.
func (x *terminal) find(part string, limit time.Duration) error {
	x.master.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 4096)
	for {
		if _, after, ok := strings.Cut(x.seen, part); ok {
			x.seen = after
			return nil
		}
		n, err := x.master.Read(buf)
		if err != nil {
			return err
		}
		x.seen += string(buf[:n])
	}
}

// TestRunTerminal runs programs from an interactive shell. Signals of the terminal and job control
// must work as they do without softmkey run.
func TestRunTerminal(t *testing.T) {
	program := builtProgram(t)
	x := newTerminal(t)
	run := fmt.Sprintf("%s run --device %s -- ", program, ownAddress(12))
	x.await("ready> ")

	script := filepath.Join(t.TempDir(), "talk")
	writeFile(t, script, []byte("echo be''gun\nwhile read line; do echo \"<$line>\"; done\n"), 0o755)
	x.enter(run + script + "\n")
	x.await("begun")
	x.enter("one\n")
	x.await("<one>")
	x.enter("\x1a") // Ctrl-Z
	x.await("Stopped")
	x.await("ready> ")
	x.ask("fg\n", script, 5*time.Second)
	x.enter("two\n")
	x.await("two>") // the program may have got a part of an fg that was typed again
	x.enter("\x03") // Ctrl-C
	x.await("ready> ")
	x.enter("echo status=$?.\n")
	x.await("status=130.")

	x.enter(run + `bash -c 'trap "echo cau""ght; exit 4" INT; echo be""gun; while :; do sleep 0.05; done'` + "\n")
	x.await("begun")
	x.enter("\x03")
	x.await("caught")
	x.await("ready> ")
	x.enter("echo status=$?.\n")
	x.await("status=4.")

	x.enter(run + script + " &\n") // a job in the background is stopped when it reads
	x.await("begun")
	x.ask("\n", "Stopped", 200*time.Millisecond) // the shell reports stopped jobs before a prompt
	x.await("ready> ")
	x.ask("fg\n", script, 5*time.Second)
	x.enter("three\n")
	x.await("three>")
	x.enter("\x04") // the end of the input
	x.await("ready> ")
}
