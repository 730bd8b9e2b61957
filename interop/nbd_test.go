package interop

import (
	"path/filepath"
	"testing"

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
	mustRun(t, "..", "env", "CGO_ENABLED=0", "go", "build", "-o", softmkey, "./cmd/softmkey")
	image, err := guest.BuildNBD("../.cache/interop/kernel", softmkey, dir)
	check(t, err)
	said := runGuest(t, image, "nbd")
	for _, want := range []string{
		`9 files are as they were written`,
		`cat: .*(Input/output|I/O) error`,
		`softmkey: /disk: bad guard: block [0-9]+ at offset [0-9]+: stored 0x[0-9a-f]+, computed 0x[0-9a-f]+`,
		`done`,
	} {
		said.match(want)
	}
	said.end()
}
