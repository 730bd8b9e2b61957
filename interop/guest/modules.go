package guest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// wanted lists the modules that the guest uses; their dependencies are read from the
// modules. crc32-pclmul provides the kernel's "crc32" algorithm, which rdma_rxe requests
// by name at run time. The last line is for packet loss and reordering in both
// directions.
var wanted = []string{
	"virtio_pci", "virtio_net",
	"crc32-pclmul", "rdma_rxe", "rdma_ucm",
	"ifb", "sch_ingress", "sch_prio", "sch_netem", "cls_flower", "cls_u32", "act_mirred",
}

// modules holds a kernel's modules by name.
type modules struct {
	files   map[string]string // name, dashes as underscores → file
	ordered []string          // files in the order of insertion
	seen    map[string]bool
}

// findModules lists the modules below root, the folder lib/modules of a kernel package.
func findModules(root string) (*modules, error) {
	m := &modules{files: map[string]string{}, seen: map[string]bool{}}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(file), ".ko"); err == nil && ok {
			m.files[canonical(name)] = file
		}
		return err
	})
	return m, err
}

// canonical returns the kernel's spelling of a module's name. File names may have dashes
// where dependencies have underscores.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// require appends a module to the order of insertion, after its dependencies.
func (m *modules) require(name string) error {
	name = canonical(name)
	if m.seen[name] {
		return nil
	}
	m.seen[name] = true
	file, ok := m.files[name]
	if !ok {
		return fmt.Errorf("the kernel package has no module %s", name)
	}
	deps, err := dependencies(file)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for _, dep := range deps {
		if err := m.require(dep); err != nil {
			return err
		}
	}
	m.ordered = append(m.ordered, file)
	return nil
}

// dependencies reads the "depends=" entry of a module. An unpacked package has no
// modules.dep, which modprobe uses, because that file is generated at installation.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no .modinfo section", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
