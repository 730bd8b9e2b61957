//go:build linux

package uverbs

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/nldev"
	"github.com/softmkey/softmkey/rdma"
)

// The place of the devices in the tree of /sys: functions of a PCI bus in a domain
// that no machine has.
const (
	pciRoot = "/sys/devices/pci7f00:00"
	pciBus  = "/sys/bus/pci/devices"

	pciDriver = "/sys/bus/pci/drivers/mlx5_core"

	pciVendor = 0x15b3 // Mellanox; the vendor of the verbs is an OUI
)

func (d *Device) bdf() string { return bdf(d.index) }

func bdf(index int) string { return fmt.Sprintf("7f00:00:%02x.0", index) }

// Node returns the path of the device's node.
func (d *Device) Node() string { return fmt.Sprintf("/dev/infiniband/uverbs%d", d.index) }

// MaxDevices is the number of devices that fit on the PCI bus.
const MaxDevices = 32

// Owned returns the paths of the system at and below which the tree of
// [WriteTree] stands.
func Owned() []string {
	owned := []string{
		"/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad", "/sys/class/infiniband_cm",
		"/sys/class/misc/rdma_cm", "/dev/infiniband", pciRoot, pciDriver,
	}
	for i := range MaxDevices {
		owned = append(owned, pciBus+"/"+bdf(i))
	}
	return owned
}

// Listed returns the paths of the system whose list of names comes from the tree of
// [WriteTree]: programs that look for PCI devices (DPDK) see the devices among the host's, and the
// classes of InfiniBand are among the host's.
func Listed() []string { return []string{pciBus, classes} }

const classes = "/sys/class"

// listClasses adds the names of the host's classes to the tree, when a program lists them.
func listClasses(root string) {
	entries, _ := os.ReadDir(classes)
	for _, e := range entries {
		os.Mkdir(root+classes+"/"+e.Name(), 0o755) // an error: the name is there
	}
}

// linkHost adds the host's PCI devices to the tree's list. In a run inside another run, the outer
// run's devices have the same addresses as this run's and are left out.
func (t *tree) linkHost() {
	t.dir(pciBus)
	emulated := map[string]bool{}
	for i := range MaxDevices {
		emulated[bdf(i)] = true
	}
	entries, _ := os.ReadDir(pciBus) // a machine without PCI has none
	for _, e := range entries {
		if emulated[e.Name()] {
			continue
		}
		path := pciBus + "/" + e.Name()
		if to, err := filepath.EvalSymlinks(path); err == nil && t.err == nil {
			t.err = os.Symlink(to, t.root+path)
		}
	}
}

// CMNode is the path of the connection manager's node, with its device number and the version of its
// commands.
const (
	CMNode  = "/dev/infiniband/rdma_cm"
	CMMajor = 10
	CMMinor = 122
	CMABI   = 4
)

// abi is the version of the driver's commands.
const abi = 1

// tree writes files below a folder, and keeps the first error.
type tree struct {
	root string
	made map[string]bool // folders
	err  error
}

func newTree(root string) *tree { return &tree{root: root, made: map[string]bool{}} }

func (t *tree) dir(path string) {
	if t.err == nil && !t.made[path] {
		t.err = os.MkdirAll(t.root+path, 0o755)
		t.made[path] = true
	}
}

func (t *tree) file(path, text string) { t.fileWith(path, text, 0o444) }

func (t *tree) fileWith(path, text string, mode os.FileMode) {
	t.dir(filepath.Dir(path))
	if t.err == nil {
		t.err = writeFile(t.root+path, text+"\n", mode)
	}
}

// writeFile is os.WriteFile with half of its system calls: a run waits for about a hundred
// files.
func writeFile(path, text string, mode os.FileMode) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if n, err := unix.Write(fd, []byte(text)); err != nil || n < len(text) {
		return &fs.PathError{Op: "write", Path: path, Err: cmp.Or(err, io.ErrShortWrite)}
	}
	return nil
}

// link makes path a symbolic link to another path of the tree.
func (t *tree) link(path, to string) {
	t.dir(filepath.Dir(path))
	if t.err != nil {
		return
	}
	rel, err := filepath.Rel(filepath.Dir(path), to)
	if err == nil {
		err = os.Symlink(rel, t.root+path)
	}
	t.err = err
}

// WriteTree writes the files of /sys and /dev that lead programs to the devices
// below a folder.
func WriteTree(root string, devices []*Device) error {
	t := newTree(root)
	t.file("/sys/class/infiniband_verbs/abi_version", "6")
	t.file("/sys/class/infiniband_mad/abi_version", "5")
	t.file("/sys/class/misc/rdma_cm/abi_version", fmt.Sprint(CMABI))
	t.file("/sys/class/misc/rdma_cm/dev", fmt.Sprintf("%d:%d", CMMajor, CMMinor))
	t.dir("/sys/class/infiniband")
	t.file(CMNode, "")
	t.dir(pciDriver)
	t.linkHost()
	for _, d := range devices {
		d.writeTree(t)
	}
	return t.err
}

// AddToTree writes the files of one more device, while programs read the others.
func AddToTree(root string, d *Device) error {
	t := newTree(root)
	d.writeTree(t)
	return t.err
}

// writeTree writes the files of a device. Those through which programs find it come last.
func (d *Device) writeTree(t *tree) {
	a := &d.attr
	major, minor := d.Number()
	pci := pciRoot + "/" + d.bdf()
	t.file(d.Node(), "")
	t.link(pciBus+"/"+d.bdf(), pci)
	t.link(pci+"/driver", pciDriver)
	t.link(pciDriver+"/"+d.bdf(), pci)
	t.file(pci+"/resource", strings.TrimSuffix(strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13), "\n"))
	for name, text := range map[string]string{
		"vendor":             fmt.Sprintf("%#04x", pciVendor),
		"device":             fmt.Sprintf("%#04x", a.VendorPartID),
		"subsystem_vendor":   fmt.Sprintf("%#04x", pciVendor),
		"subsystem_device":   "0x0000",
		"class":              "0x020000",
		"revision":           "0x00",
		"modalias":           fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd00000000bc02sc00i00", pciVendor, a.VendorPartID, pciVendor),
		"local_cpus":         online("mask"),
		"local_cpulist":      online("list"),
		"numa_node":          "0",
		"current_link_speed": "16.0 GT/s PCIe",
		"current_link_width": "16",
		"max_link_speed":     "16.0 GT/s PCIe",
		"max_link_width":     "16",
		"uevent":             fmt.Sprintf("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=%04X:%04X\nPCI_SLOT_NAME=%s", pciVendor, a.VendorPartID, d.bdf()),
	} {
		t.file(pci+"/"+name, text)
	}
	netdev := d.Interface()
	if netdev.Name != "" {
		t.file(pci+"/net/"+netdev.Name+"/dev_port", "0")
		t.file(pci+"/net/"+netdev.Name+"/dev_id", "0x0")
		t.file(pci+"/net/"+netdev.Name+"/address", mac(netdev))
		t.file(pci+"/net/"+netdev.Name+"/mtu", fmt.Sprint(netdev.MTU))
	}

	uverbs := fmt.Sprintf("%s/infiniband_verbs/uverbs%d", pci, d.index)
	t.file(uverbs+"/ibdev", d.name)
	t.file(uverbs+"/dev", fmt.Sprintf("%d:%d", major, minor))
	t.file(uverbs+"/abi_version", fmt.Sprint(abi))
	t.link(uverbs+"/device", pci)
	t.file(uverbs+"/uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=infiniband/uverbs%d", major, minor, d.index))
	t.link(uverbs+"/subsystem", "/sys/class/infiniband_verbs")
	t.link(pci+"/subsystem", filepath.Dir(pciBus))

	ib := pci + "/infiniband/" + d.name
	t.link(ib+"/device", pci)
	t.file(ib+"/uevent", "NAME="+d.name)
	t.link(ib+"/subsystem", "/sys/class/infiniband")
	for name, text := range map[string]string{
		"node_type":      "1: CA",
		"node_guid":      guid(a.NodeGUID),
		"sys_image_guid": guid(a.SysImageGUID),
		"node_desc":      "softmkey " + d.name,
		"fw_ver":         a.FWVersion,
		"hw_rev":         fmt.Sprint(a.HWVersion),
		"hca_type":       fmt.Sprintf("MT%d", a.VendorPartID),
		"board_id":       a.BoardID,
	} {
		t.file(ib+"/"+name, text)
	}
	port := d.port()
	for name, text := range map[string]string{
		"rate":           "100 Gb/sec (4X EDR)",
		"link_layer":     "Ethernet",
		"lid":            "0x0",
		"lid_mask_count": "0",
		"sm_lid":         "0x0",
		"sm_sl":          "0",
		"cap_mask":       fmt.Sprintf("0x%08x", capCM|capIPBased),
		"pkeys/0":        "0xffff",
	} {
		t.file(port+"/"+name, text)
	}
	for path, text := range d.changing() {
		t.file(path, text)
	}
	for name, n := range counterFiles(&rdma.Counters{}, &adapter.Failures{}) {
		t.fileWith(port+"/"+name, fmt.Sprint(n), 0o644) // Refresh writes it again
	}
	t.link("/sys/class/infiniband/"+d.name, ib)
	t.link(fmt.Sprintf("/sys/class/infiniband_verbs/uverbs%d", d.index), uverbs)
}

// changing returns the files of the device whose text follows the state of the port and the GID table. An
// empty GID has no attributes; the text of their files is empty then.
func (d *Device) changing() map[string]string {
	port, netdev := d.port(), d.Interface()
	state, phys, oper := "4: ACTIVE", "5: LinkUp", "up"
	if !d.adapter.LinkUp() {
		state, phys, oper = "1: DOWN", "3: Disabled", "down"
	}
	files := map[string]string{port + "/state": state, port + "/phys_state": phys}
	if netdev.Name != "" {
		files[pciRoot+"/"+d.bdf()+"/net/"+netdev.Name+"/operstate"] = oper
	}
	gids := d.adapter.GIDs()
	for i := range adapter.GIDTableSize {
		gid := strings.Repeat("0000:", 7) + "0000"
		if i < len(gids) && gids[i].GID != [16]byte{} {
			g := gids[i]
			gid = colons(g.GID[:])
			typ := "IB/RoCE v1"
			if g.RoCEv2 {
				typ = "RoCE v2"
			}
			files[fmt.Sprintf("%s/gid_attrs/types/%d", port, i)] = typ
			files[fmt.Sprintf("%s/gid_attrs/ndevs/%d", port, i)] = netdev.Name
		}
		files[fmt.Sprintf("%s/gids/%d", port, i)] = gid
	}
	return files
}

// Changed brings the files of the device below root up to date after a change of its port or its GIDs. A
// program that has a file open keeps the old text.
func (d *Device) Changed(root string) error {
	files := d.changing()
	for i := range adapter.GIDTableSize {
		for _, name := range []string{"types", "ndevs"} {
			path := fmt.Sprintf("%s/gid_attrs/%s/%d", d.port(), name, i)
			if _, ok := files[path]; !ok {
				os.Remove(root + path) // an error: it is not there
			}
		}
	}
	for path, text := range files {
		next := root + path + ".next"
		err := writeFile(next, text+"\n", 0o444)
		if err == nil {
			err = os.Rename(next, root+path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Netlink describes the device for answers to NETLINK_RDMA.
func (d *Device) Netlink() nldev.Device {
	a, netdev := &d.attr, d.Interface()
	major, minor := d.Number()
	return nldev.Device{
		Index: uint32(d.index), Name: d.name, Firmware: a.FWVersion, Capabilities: a.DeviceCapFlags,
		Down: !d.adapter.LinkUp(), NodeGUID: a.NodeGUID, SystemGUID: a.SysImageGUID, Interface: nldev.Interface{Index: netdev.Index, Name: netdev.Name},
		Verbs: nldev.Node{Name: fmt.Sprintf("uverbs%d", d.index), ABI: abi, Major: major, Minor: minor},
	}
}

// Addresses returns the addresses in a result of package net, such as that of InterfaceAddrs, with its error.
func Addresses(list []net.Addr, err error) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	return addrs, err
}

// Interface returns the network interface that has or had the device's address, or one without a
// name. Every address of 127.0.0.0/8 belongs to the loopback interface.
func (d *Device) Interface() net.Interface {
	all, _ := net.Interfaces()
	for _, i := range all {
		if d.addr.IsLoopback() && i.Flags&net.FlagLoopback != 0 {
			return i
		}
		if addrs, _ := Addresses(i.Addrs()); slices.Contains(addrs, d.addr.Unmap()) {
			d.netdev.Store(int32(i.Index))
			return i
		}
	}
	if i, err := net.InterfaceByIndex(int(d.netdev.Load())); err == nil {
		return *i
	}
	return net.Interface{}
}

func mac(i net.Interface) string {
	if len(i.HardwareAddr) == 6 {
		return i.HardwareAddr.String()
	}
	return "00:00:00:00:00:00"
}

// guid writes a GUID as sysfs does: four groups of four digits.
func guid(v uint64) string {
	b := make([]byte, 8)
	putBE64(b, v)
	return colons(b)
}

// colons writes bytes as groups of four hexadecimal digits.
func colons(b []byte) string {
	var groups []string
	for i := 0; i+1 < len(b); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", b[i], b[i+1]))
	}
	return strings.Join(groups, ":")
}

// online returns the processors of the machine, as sysfs writes a mask or a list.
func online(form string) string {
	list, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		list = []byte("0")
	}
	text := strings.TrimSpace(string(list))
	if form == "list" {
		return text
	}
	var mask [8]uint32 // a bit for each processor
	for _, part := range strings.Split(text, ",") {
		from, to := 0, 0
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		for i := from; i <= to && i < 32*len(mask); i++ {
			mask[i/32] |= 1 << (i % 32)
		}
	}
	last := len(mask) - 1
	for last > 0 && mask[last] == 0 {
		last--
	}
	words := []string{fmt.Sprintf("%x", mask[last])}
	for i := last - 1; i >= 0; i-- {
		words = append(words, fmt.Sprintf("%08x", mask[i]))
	}
	return strings.Join(words, ",")
}
