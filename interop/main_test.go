package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/rig"
)

// booted is the rig of all tests of this package, or nil if no test has used it.
var booted *rig.Rig

// shared boots the rig once, because that takes longer than most tests.
var shared = sync.OnceValue(func() (err error) {
	lossy, err := lossyProgram()
	if err != nil {
		return err
	}
	booted, err = rig.Start(context.Background(), lossy)
	if err == nil {
		fmt.Printf("booted the guest in %v\n", booted.BootTime.Round(time.Millisecond))
	}
	return err
})

// sharedRig returns the rig; the first caller boots it.
func sharedRig(t *testing.T) *rig.Rig {
	t.Helper()
	check(t, shared())
	return booted
}

// mustRun runs a program of this host in a folder, or in the folder of the tests, and returns its output. A program that
// fails ends the test.
func mustRun(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, text)
	}
	return string(text)
}

func TestMain(m *testing.M) { os.Exit(rig.Main(closing{m})) }

// closing closes the rig after the tests.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	status := c.m.Run()
	for _, f := range cleanups {
		f()
	}
	if booted != nil {
		if status != 0 {
			fmt.Fprintln(os.Stderr, booted.Guest.ConsoleTail())
		}
		if err := booted.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}
