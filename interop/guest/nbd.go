package guest

import (
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed files/init-nbd
var initNBD []byte

// BuildNBD packs an image for a guest that has the kernel's nbd and ext4, softmkey as the static
// binary at softmkey, and /init of files/init-nbd.
func BuildNBD(kernel, softmkey, dir string) (Image, error) {
	vmlinuz, err := one(filepath.Join(kernel, "boot/vmlinuz-*"))
	if err != nil {
		return Image{}, err
	}
	a := newArchive()
	for _, mount := range []string{"/proc", "/sys", "/dev", "/tmp"} {
		a.add(mount, entry{mode: modeDir})
	}
	a.add("/dev/console", entry{mode: modeChar, major: 5, minor: 1})
	a.add("/init", entry{mode: modeExec, data: initNBD})
	// ext4 requests crc32c by the name of the algorithm, so modules do not list it as a dependency.
	if err := addModules(a, filepath.Join(kernel, "lib/modules"), []string{"nbd", "crc32c_generic?", "ext4"}); err != nil {
		return Image{}, err
	}
	if err := addPrograms(a, []string{"nbd-client", "mkfs.ext4", "fsck.ext4"}); err != nil {
		return Image{}, err
	}
	if err := addBinary(a, softmkey, "/sbin/softmkey"); err != nil {
		return Image{}, err
	}
	image := Image{Kernel: vmlinuz, Initramfs: filepath.Join(dir, "initramfs-nbd.cpio")}
	return image, os.WriteFile(image.Initramfs, a.bytes(), 0o644)
}
