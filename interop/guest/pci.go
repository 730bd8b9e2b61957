package guest

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

//go:embed files/init-pci
var initPCI []byte

// mlx5Provider is the library that libibverbs loads for an mlx5 device.
const mlx5Provider = "/usr/lib/*/libibverbs/libmlx5-rdmav*.so"

// pciPrograms are what a guest with an RDMA device runs.
var pciPrograms = []string{
	"ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong", "rping", "ucmatose", "udaddy", "mckey", "iperf3",
	"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat", "ib_write_lat",
}

// PCI describes a guest with an adapter of softmkey pci.
type PCI struct {
	Kernel string // folder in which a kernel package was unpacked; its driver is unchanged
	RDMA   bool   // with the drivers and programs for RDMA
	Script string // commands of /init after the peer was reached; files/init-pci says what they can use

	Modules  []string // further drivers; one whose name ends with a question mark may be missing
	Programs []string // further programs of the host, or their files
	Peers    []string // further programs of our own; see Compile
}

// Build packs the image. It writes the initramfs to dir.
func (p *PCI) Build(dir string) (Image, error) {
	vmlinuz, err := one(filepath.Join(p.Kernel, "boot/vmlinuz-*"))
	if err != nil {
		return Image{}, err
	}
	a := newArchive()
	for _, mount := range []string{"/proc", "/sys", "/dev", "/tmp"} {
		a.add(mount, entry{mode: modeDir})
	}
	a.add("/dev/console", entry{mode: modeChar, major: 5, minor: 1})
	a.add("/init", entry{mode: modeExec, data: initPCI})
	a.add("/script", entry{mode: modeFile, data: []byte(p.Script)})
	modules, programs := []string{"mlx5_core"}, []string{"ip"}
	if p.RDMA {
		modules, programs = append(modules, "mlx5_ib", "rdma_ucm", "8021q"), append(programs, pciPrograms...)
		for _, add := range []func(*archive) error{
			func(a *archive) error { return addProvider(a, "mlx5", mlx5Provider) },
			func(a *archive) error { return addPeers(a, dir, slices.Concat(peers, p.Peers)) },
		} {
			if err := add(a); err != nil {
				return Image{}, err
			}
		}
	}
	if err := addModules(a, filepath.Join(p.Kernel, "lib/modules"), append(modules, p.Modules...)); err != nil {
		return Image{}, err
	}
	if err := addPrograms(a, append(programs, p.Programs...)); err != nil {
		return Image{}, err
	}
	f, err := os.CreateTemp(dir, "initramfs-pci-*.cpio")
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	if _, err := f.Write(a.bytes()); err != nil {
		return Image{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return Image{Kernel: vmlinuz, Initramfs: f.Name()}, nil
}
