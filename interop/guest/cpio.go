package guest

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
)

// Modes of archive entries, as stat(2) defines them.
const (
	modeDir  = 0o040755
	modeExec = 0o100755
	modeFile = 0o100644
	modeChar = 0o020600
)

// archive collects the files of an initramfs by absolute path.
type archive map[string]entry

type entry struct {
	mode         int
	data         []byte
	major, minor int // numbers of a device node
}

// add adds an entry to the archive, and the directories above it.
func (a archive) add(name string, e entry) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := a[dir]; !ok {
			a[dir] = entry{mode: modeDir}
		}
	}
	a[name] = e
}

// bytes returns the archive in cpio's "newc" format, which the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). The names are sorted, so
// that every directory precedes its contents.
func (a archive) bytes() []byte {
	var out bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(a)) {
		writeEntry(&out, i+1, name[1:], a[name])
	}
	writeEntry(&out, 0, "TRAILER!!!", entry{})
	return out.Bytes()
}

func writeEntry(out *bytes.Buffer, inode int, name string, e entry) {
	fmt.Fprintf(out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, e.major, e.minor, len(name)+1, 0)
	out.WriteString(name)
	out.WriteByte(0)
	align(out)
	out.Write(e.data)
	align(out)
}

// align pads to a multiple of four bytes, as the format requires after names and data.
func align(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}
