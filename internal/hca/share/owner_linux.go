package share

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// portOwner describes the program that has bound the UDP port of local, as far as /proc shows it.
func portOwner(local netip.AddrPort) string {
	for file, addrs := range portNames(local.Addr()) {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			if len(f) < 10 {
				continue
			}
			addr, port, _ := strings.Cut(f[1], ":")
			if port == fmt.Sprintf("%04X", local.Port()) && slices.Contains(addrs, addr) {
				if owner := socketOwner(f[9]); owner != "" {
					return owner
				}
				return "a program of user " + f[7]
			}
		}
	}
	return "another program"
}

// portNames returns the files of /proc that list UDP sockets, with the addresses there that conflict with addr.
func portNames(addr netip.Addr) map[string][]string {
	hex := func(b []byte) (text string) {
		for ; len(b) > 0; b = b[4:] {
			text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b))
		}
		return text
	}
	mapped := addr.As16()
	names := map[string][]string{"/proc/self/net/udp6": {hex(mapped[:]), hex(make([]byte, 16))}}
	if addr.Is4() {
		names["/proc/self/net/udp"] = []string{hex(addr.AsSlice()), hex(make([]byte, 4))}
	}
	return names
}

// nameOwner describes the program that has bound the abstract name of a UNIX socket; empty: /proc does not show it.
func nameOwner(name string) string {
	text, _ := os.ReadFile("/proc/self/net/unix")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // Num RefCount Protocol Flags Type St Inode Path
		if len(f) == 8 && f[7] == name {
			return socketOwner(f[6])
		}
	}
	return ""
}

// socketOwner describes a process that has a socket open; empty: none that this process may look at has.
func socketOwner(inode string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		name, _ := os.ReadFile(process + "/comm")
		text := fmt.Sprintf("process %s (%s)", filepath.Base(process), bytes.TrimSpace(name))
		if st, err := os.Stat(process); err == nil {
			text += fmt.Sprintf(" of user %d", st.Sys().(*syscall.Stat_t).Uid)
		}
		return text
	}
	return ""
}
