package guest

import (
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed files/init-pci
var initPCI []byte

// BuildPCI packs an image for a guest with an adapter of softmkey pci: the mlx5 driver of
// the kernel package unpacked at kernel, unchanged, and /init of files/init-pci.
func BuildPCI(kernel, dir string) (Image, error) {
	vmlinuz, err := one(filepath.Join(kernel, "boot/vmlinuz-*"))
	if err != nil {
		return Image{}, err
	}
	a := newArchive()
	for _, mount := range []string{"/proc", "/sys", "/dev"} {
		a.add(mount, entry{mode: modeDir})
	}
	a.add("/dev/console", entry{mode: modeChar, major: 5, minor: 1})
	a.add("/init", entry{mode: modeExec, data: initPCI})
	if err := addModules(a, filepath.Join(kernel, "lib/modules"), []string{"mlx5_core"}); err != nil {
		return Image{}, err
	}
	if err := addPrograms(a, []string{"ip"}); err != nil {
		return Image{}, err
	}
	image := Image{Kernel: vmlinuz, Initramfs: filepath.Join(dir, "initramfs-pci.cpio")}
	return image, os.WriteFile(image.Initramfs, a.bytes(), 0o644)
}
