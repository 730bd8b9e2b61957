package link

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/roce/netem"
)

// Programs run on other processors than the forwarder, and this process has all of its own again after Close.
func TestSeparate(t *testing.T) {
	var before, after unix.CPUSet
	check(t, unix.SchedGetaffinity(0, &before))
	if before.Count() < 2 {
		t.Skip("NOT RUN: a single processor")
	}
	k := newLink(t, netem.Link{})
	if err := k.Separate(); err != nil {
		t.Error(err)
	}
	own, theirs := allowed(t, nil), allowed(t, k.A)
	if own == theirs || theirs != allowed(t, k.B) {
		t.Errorf("this process runs on processors %s, programs on %s and %s", own, theirs, allowed(t, k.B))
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("%v; %d processors after Close, %d before", err, after.Count(), before.Count())
	}
}

// allowed returns the processors of a program that is started on a host, or of this process, as the kernel lists them.
func allowed(t *testing.T, h *Host) string {
	const name = "/proc/self/status"
	status, err := os.ReadFile(name)
	if h != nil {
		var out bytes.Buffer
		cmd := exec.Command("cat", name)
		cmd.Stdout = &out
		if err = h.Start(cmd); err == nil {
			err = cmd.Wait()
		}
		status = out.Bytes()
	}
	check(t, err)
	for line := range bytes.Lines(status) {
		if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
			return string(bytes.TrimSpace(list))
		}
	}
	t.Fatalf("no list of processors in %s", status)
	return ""
}

// The flow of a UDP packet is found in its headers. Packets without the ports in the usual place have the zero Flow.
func TestFlow(t *testing.T) {
	p := []byte{0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 92, 0, 1, 10, 92, 0, 4, 0xC0, 0, 0x12, 0xB7, 0, 8, 0, 0}
	if got, want := flowOf(p), (Flow{netip.MustParseAddr("10.92.0.4"), 17, 4791}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	later := bytes.Clone(p)
	later[7] = 1 // offset of a fragment
	for name, b := range map[string][]byte{"a later fragment": later, "IPv6": {0x60, 40: 0}, "23 bytes": p[:23]} {
		if got := flowOf(b); got != (Flow{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
