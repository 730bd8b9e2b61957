package guest

import (
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed files/init
var initScript []byte

//go:embed files/*.c
var sources embed.FS

// programs are copied from the host, with the libraries that they need.
var programs = []string{
	"ip", "tc", "rdma",
	"ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_devinfo",
	"rping", "rdma_server", "rdma_client", "ucmatose", "udaddy",
	"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw",
	"ib_send_lat", "ib_write_lat", "ib_read_lat",
}

// exitLibrary is the library that the C library loads when a thread calls pthread_exit,
// as rping's threads do. No program depends on it by name.
const exitLibrary = "libgcc_s.so.1"

// Image is a bootable machine: the files for qemu's -kernel and -initrd.
type Image struct {
	Kernel    string
	Initramfs string
}

// contents is what an image has besides a kernel, busybox and /init.
type contents struct {
	kernel   string // folder in which a kernel package was unpacked
	init     []byte
	script   string   // the file /script, for those whose /init reads it
	modules  []string // one whose name ends with a question mark may be missing
	programs []string // of the host, or their files
	peers    []string // of our own; see Compile
	provider string   // driver for which libibverbs needs a library, or empty
}

// build packs an image. It writes the initramfs to dir.
func build(dir string, c contents) (Image, error) {
	vmlinuz, err := one(filepath.Join(c.kernel, "boot/vmlinuz-*"))
	if err != nil {
		return Image{}, err
	}
	a := archive{}
	for _, mount := range []string{"/proc", "/sys", "/dev", "/tmp"} {
		a.add(mount, entry{mode: modeDir})
	}
	a.add("/dev/console", entry{mode: modeChar, major: 5, minor: 1})
	a.add("/init", entry{mode: modeExec, data: c.init})
	a.add("/script", entry{mode: modeFile, data: []byte(c.script)})
	for _, step := range []func() error{
		func() error { return addModules(a, filepath.Join(c.kernel, "lib/modules"), c.modules) },
		func() error { return addPrograms(a, c.programs) },
		func() error { return addProvider(a, c.provider) },
		func() error { return addPeers(a, dir, c.peers) },
	} {
		if err := step(); err != nil {
			return Image{}, err
		}
	}
	f, err := os.CreateTemp(dir, "initramfs-*.cpio")
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	if _, err := f.Write(a.bytes()); err != nil {
		return Image{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return Image{Kernel: vmlinuz, Initramfs: f.Name()}, nil
}

// Build packs an image with the driver of soft-RoCE from the kernel package unpacked at kernel
// (see setup.sh) and from the host's programs, of which more can be named. It writes the
// initramfs to dir.
func Build(kernel, dir string, more ...string) (Image, error) {
	return build(dir, contents{
		kernel: kernel, init: initScript, modules: wanted, programs: slices.Concat(programs, more), peers: peers, provider: "rxe",
	})
}

//go:embed files/init-nbd
var initNBD []byte

// BuildNBD packs an image for a guest that has the kernel's nbd and ext4, softmkey as the static
// binary at softmkey, and /init of files/init-nbd.
func BuildNBD(kernel, softmkey, dir string) (Image, error) {
	return build(dir, contents{
		kernel: kernel, init: initNBD,
		// ext4 requests crc32c by the name of the algorithm, so modules do not list it as a dependency.
		modules:  []string{"nbd", "crc32c_generic?", "ext4"},
		programs: []string{"nbd-client", "mkfs.ext4", "fsck.ext4", softmkey},
	})
}

//go:embed files/init-nvme
var initNVMe []byte

// BuildNVMe packs an image for a guest that has the kernel's NVMe driver, and /init of files/init-nvme.
func BuildNVMe(kernel, dir string) (Image, error) {
	return build(dir, contents{
		kernel: kernel, init: initNVMe,
		// The guards' algorithms are requested by their names, too.
		modules:  []string{"crct10dif_generic?", "crc64_rocksoft_generic?", "nvme"},
		programs: []string{"nvme"},
	})
}

// one returns the only file that matches a pattern.
func one(pattern string) (string, error) {
	names, err := filepath.Glob(pattern)
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("%d files match %s, not one", len(names), pattern)
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// addModules adds kernel modules, in an order in which they can be inserted. One whose name ends with a question mark
// may be missing: some kernels have it built in, or not at all.
func addModules(a archive, root string, wanted []string) error {
	m, err := findModules(root)
	if err != nil {
		return err
	}
	for _, name := range wanted {
		name, optional := strings.CutSuffix(name, "?")
		if _, has := m.files[canonical(name)]; optional && !has {
			continue
		}
		if err := m.require(name); err != nil {
			return err
		}
	}
	var order strings.Builder
	for _, file := range m.ordered {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		a.add("/modules/"+filepath.Base(file), entry{mode: modeFile, data: data})
		fmt.Fprintln(&order, filepath.Base(file))
	}
	a.add("/modules/order", entry{mode: modeFile, data: []byte(order.String())})
	return nil
}

func addPrograms(a archive, programs []string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	if err := addBinary(a, busybox, "/bin/busybox"); err != nil {
		return err
	}
	for _, name := range programs {
		file, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		// Not /bin, because busybox creates a link for each of its applets there.
		if err := addBinary(a, file, "/sbin/"+filepath.Base(name)); err != nil {
			return err
		}
	}
	return nil
}

// addProvider adds the library that libibverbs loads for devices of a driver, if there is one.
func addProvider(a archive, driver string) error {
	if driver == "" {
		return nil
	}
	// The suffix of the name is the version of libibverbs' private interface.
	library, err := one("/usr/lib/*/libibverbs/lib" + driver + "-rdmav*.so")
	if err != nil {
		return err
	}
	a.add("/etc/libibverbs.d/"+driver+".driver", entry{mode: modeFile, data: []byte("driver " + driver + "\n")})
	exit, err := findLibrary(exitLibrary)
	if err != nil {
		return err
	}
	if err := addBinary(a, exit, exit); err != nil {
		return err
	}
	return addBinary(a, library, library)
}

// peers are the programs of our own that each machine with RDMA has.
var peers = []string{"rxepeer", "cmpeer", "copypeer", "nvmepass"}

// addPeers compiles programs of our own on the host and adds them.
func addPeers(a archive, dir string, names []string) error {
	for _, name := range names {
		binary, err := Compile(dir, name)
		if err != nil {
			return err
		}
		if err := addBinary(a, binary, "/sbin/"+name); err != nil {
			return err
		}
	}
	return nil
}

// Compile compiles one of our own programs, for example "cmpeer", in dir, and returns the
// name of the executable.
func Compile(dir, name string) (string, error) {
	text, err := sources.ReadFile("files/" + name + ".c")
	if err != nil {
		return "", err
	}
	source, binary := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, text, 0o644); err != nil {
		return "", err
	}
	compile := exec.Command("gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", binary, source, "-lrdmacm", "-libverbs")
	if text, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", name, err, text)
	}
	return binary, nil
}

// addBinary adds the host's ELF file at name and, at their own paths, its interpreter and
// all libraries that it needs.
func addBinary(a archive, file, name string) error {
	if _, ok := a[name]; ok {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	a.add(name, entry{mode: modeExec, data: data})
	needs, err := needed(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, library := range needs {
		if err := addBinary(a, library, library); err != nil {
			return err
		}
	}
	return nil
}

// needed returns the interpreter and the direct libraries of an ELF file.
func needed(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}
	var paths []string
	if interp := f.Section(".interp"); interp != nil {
		text, err := interp.Data()
		if err != nil {
			return nil, err
		}
		paths = append(paths, strings.TrimRight(string(text), "\x00"))
	}
	for _, name := range names {
		path, err := findLibrary(name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// findLibrary searches the folders in which Debian keeps shared libraries.
func findLibrary(name string) (string, error) {
	// fio needs libraries of package ceph, which have a folder of their own.
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib/x86_64-linux-gnu/ceph"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("library %s not found", name)
}
