package guest

import (
	_ "embed"
	"slices"
)

//go:embed files/init-pci
var initPCI []byte

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
	c := contents{
		kernel: p.Kernel, init: initPCI, script: p.Script,
		modules: []string{"mlx5_core"}, programs: []string{"ip"},
	}
	if p.RDMA {
		c.modules, c.programs = append(c.modules, "mlx5_ib", "rdma_ucm", "8021q"), append(c.programs, pciPrograms...)
		c.peers, c.provider = slices.Concat(peers, p.Peers), "mlx5"
	}
	c.modules, c.programs = append(c.modules, p.Modules...), append(c.programs, p.Programs...)
	return build(dir, c)
}
