package interop

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// console is what a guest said.
type console struct {
	t   *testing.T
	tag string // at the beginning of its lines
	all string
	own strings.Builder // the lines with the tag
}

// runGuest boots an image without a network, with more arguments of QEMU, and returns what the guest said when it has
// ended. Its lines begin with tag.
func runGuest(t *testing.T, image guest.Image, tag string, more ...string) *console {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := slices.Concat([]string{"-M", "q35", "-accel", "tcg", "-cpu", "max,la57=off", "-smp", "1", "-m", "768",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none",
		"-kernel", image.Kernel, "-initrd", image.Initramfs, "-append", "console=ttyS0 panic=-1 no_timer_check mitigations=off"}, more)
	text, err := exec.CommandContext(ctx, "qemu-system-x86_64", args...).CombinedOutput()
	if err != nil {
		t.Errorf("qemu: %v", err)
	}
	c := &console{t: t, tag: tag, all: string(text)}
	for line := range strings.Lines(c.all) {
		if at := strings.Index(line, tag+": "); at >= 0 {
			c.own.WriteString(strings.TrimRight(line[at:], "\r\n") + "\n")
		}
	}
	t.Logf("the guest said:\n%s", &c.own)
	return c
}

// match looks for a line of the guest, without its tag, and returns the last group of the expression.
func (c *console) match(want string) string {
	c.t.Helper()
	found := regexp.MustCompile("(?m)^" + c.tag + ": " + want + "$").FindStringSubmatch(c.own.String())
	if found == nil {
		c.t.Errorf("no line %s", want)
		return ""
	}
	return found[len(found)-1]
}

// end prints the end of everything that the guest said if the test has failed.
func (c *console) end() {
	if c.t.Failed() {
		c.t.Logf("the end of the console:\n%s", c.all[max(0, len(c.all)-3000):])
	}
}
