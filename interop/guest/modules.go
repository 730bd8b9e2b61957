package guest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// wanted are the modules that the guest uses; what they depend on is found in
// the modules themselves. crc32-pclmul stands for the kernel's "crc32"
// algorithm, which rdma_rxe asks for by name at run time and not by symbol; the
// last line is for packet loss and reordering in both directions.
var wanted = []string{
	"virtio_pci", "virtio_net",
	"crc32-pclmul", "rdma_rxe", "rdma_ucm",
	"ifb", "sch_ingress", "sch_prio", "sch_netem", "cls_flower", "act_mirred",
}

// modules is the set of a kernel's modules by name.
type modules struct {
	files   map[string]string // name, dashes as underscores → file
	ordered []string          // files in the order of insertion
	seen    map[string]bool
}

// findModules lists the modules below root, a kernel package's lib/modules.
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

// canonical is the kernel's own spelling of a module's name: file names may
// have dashes where the dependencies of other modules have underscores.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// require appends a module to the order of insertion, after all that it depends on.
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

// dependencies reads a module's "depends=" entry. modules.dep, where modprobe
// looks, does not exist in an unpacked package: installing the package makes it.
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
