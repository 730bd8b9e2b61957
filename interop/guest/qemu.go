package guest

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// QEMU returns the command of a virtual machine with the adapter that listens at a socket: an image, with
// parameters for its kernel and its /init. Root is the folder in which Debian's package of QEMU was unpacked.
// The machine's console is the command's input and output. QEMU waits a minute for the adapter, not 5 s, after which the
// driver finds a broken device on a busy host.
func QEMU(root, socket, parameters string, image Image) *exec.Cmd {
	libs := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	return exec.Command(filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", libs, filepath.Join(root, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
		"-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512", "-object", "memory-backend-memfd,id=m0,size=512M,share=on", "-machine", "memory-backend=m0",
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none",
		"-kernel", image.Kernel, "-initrd", image.Initramfs,
		"-append", "console=ttyS0 no_timer_check mitigations=off "+parameters,
		"-device", fmt.Sprintf(`{"driver":"vfio-user-pci","x-msg-timeout":60000,"socket":{"path":%q,"type":"unix"}}`, socket))
}
