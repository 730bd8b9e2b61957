package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// otherInGuests are the steps of the transcript that come out otherwise in a guest, beside its limits.
var otherInGuests = map[string]string{
	"mistakes 42": "the bytes of a buffer after a failed receive are undefined",
	"mistakes 86": "the same", "mistakes 89": "the same",
	"mistakes 87": "keys and regions that mlx5_ib makes may be invalidated by a peer", "mistakes 88": "the same", "mistakes 91": "and by their owner",
}

// compareTranscript looks for the lines of testdata/hardware/softmkey.txt on a console.
func compareTranscript(t *testing.T, console string) {
	t.Helper()
	want, err := os.ReadFile("../testdata/hardware/softmkey.txt")
	check(t, err)
	got, err := os.ReadFile(console)
	check(t, err)
	lines := map[string]string{}
	for line := range strings.Lines(string(got)) {
		line, _ = strings.CutPrefix(line, "transcript: ")
		name, _, _ := strings.Cut(line, ":")
		lines[name] = strings.TrimRight(line, "\r\n")
	}
	bad := 0
	for line := range strings.Lines(string(want)) {
		name, _, _ := strings.Cut(line, ":")
		if line = strings.TrimRight(line, "\n"); line[0] == '#' || strings.HasPrefix(name, "limits ") || otherInGuests[name] != "" || lines[name] == line {
			continue
		}
		if bad++; bad <= 10 {
			t.Errorf("the guest's transcript has\n%s\nwhere a program's has\n%s", lines[name], line)
		}
	}
	if bad > 10 {
		t.Errorf("%d lines of the transcript differ", bad)
	}
}

// Programs of a guest give memory keys signatures and crypto attributes by mlx5dv of their own
// libmlx5. They are those of examples/c, which compare what the peer sees with reference
// implementations: the AES-XTS of OpenSSL, CRCs one bit at a time.
func TestPCIKeys(t *testing.T) {
	withoutUML(t, mapped)
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	examples := []string{"crypto", "signature", "blocks", "layout", "domains", "pipelining", "objects", "completions"}
	parts := map[string]string{"objects": "atomics devmem events import windows"}
	script, steps, programs := "step gids eventually gid ffff 3\n", []string{"gids"}, []string(nil)
	dir := t.TempDir()
	for _, name := range examples {
		program := filepath.Join(dir, name)
		mustRun(t, "../examples/c", "gcc", "-Wall", "-O1", "-o", program, name+".c", "pair.c", "-libverbs", "-lmlx5", "-lcrypto")
		programs = append(programs, program)
		script += "step " + name + " timeout 60 " + name + " " + parts[name] + "\n"
		steps = append(steps, name)
	}
	// The guest writes the transcript of hardware/ on its console.
	program := filepath.Join(dir, "mkeytranscript")
	mustRun(t, "../hardware", "gcc", "-O2", "-Wall", "-Wextra", "-o", program, "mkeytranscript.c", "-libverbs", "-lmlx5")
	programs, steps = append(programs, program), append(steps, "transcript")
	script += "step transcript timeout 200 mkeytranscript\n"
	eachKernel(t, guest.PCI{RDMA: true, Script: script, Programs: programs}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		// The guest is its own peer.
		g := startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.96.0.1 pci.peer=10.96.0.1", image, "--signature-errors", "manual")
		g.done(steps...)
		compareTranscript(t, g.console)
	})
}
