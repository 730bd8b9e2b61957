package interop

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// TestNBDClient makes an ext4 file system, with the kernel of a guest, on an image that softmkey nbd
// serves in the guest. Files must have the content that was written, the image must verify, and a
// damaged block may only affect its file.
func TestNBDClient(t *testing.T) {
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	dir := t.TempDir()
	softmkey := filepath.Join(dir, "softmkey")
	build := exec.Command("go", "build", "-o", softmkey, "./cmd/softmkey")
	build.Dir = ".."
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	image, err := guest.BuildNBD("../.cache/interop/kernel", softmkey, dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max,la57=off", "-smp", "1", "-m", "768",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none",
		"-kernel", image.Kernel, "-initrd", image.Initramfs, "-append", "console=ttyS0 panic=-1 no_timer_check mitigations=off")
	console, err := qemu.CombinedOutput()
	if err != nil {
		t.Errorf("qemu: %v", err)
	}
	var said strings.Builder
	for line := range strings.Lines(string(console)) {
		if at := strings.Index(line, "nbd: "); at >= 0 {
			said.WriteString(strings.TrimRight(line[at:], "\r\n") + "\n")
		}
	}
	t.Logf("the guest said:\n%s", &said)
	for _, want := range []string{
		`(?m)^nbd: 9 files are as they were written$`,
		`(?m)^nbd: cat: .*(Input/output|I/O) error$`,
		`(?m)^nbd: softmkey: /disk: bad guard: block [0-9]+ at offset [0-9]+: stored 0x[0-9a-f]+, computed 0x[0-9a-f]+$`,
		`(?m)^nbd: done$`,
	} {
		if !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Logf("the end of the console:\n%s", console[max(0, len(console)-3000):])
	}
}
