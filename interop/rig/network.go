package rig

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
)

// The addresses of this process. The guest has the next ones.
var (
	hostAddr4 = netip.MustParseAddr("10.91.0.1")
	hostAddr6 = netip.MustParseAddr("fd91::1")
)

const (
	prefix4 = "/24"
	prefix6 = "/64"
	bridge  = "rigbr0"

	// tapQueue is the number of frames that the tap queues for qemu. An emulated
	// guest is far slower than this process, and must lose only the frames that a
	// test wants to lose.
	tapQueue = 10000
)

// buildNetwork creates the bridge, with this process's addresses, and the guest's tap.
func buildNetwork(tap string) error {
	// Duplicate address detection would delay the bridge's link-local address.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	size := strconv.Itoa(mtu)
	steps := [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"addr", "add", hostAddr4.String() + prefix4, "dev", bridge},
		{"-6", "addr", "add", hostAddr6.String() + prefix6, "dev", bridge, "nodad"},
		{"tuntap", "add", tap, "mode", "tap"},
		{"link", "set", tap, "mtu", size, "txqueuelen", strconv.Itoa(tapQueue), "master", bridge, "up"},
		{"link", "set", bridge, "mtu", size, "up"}, // cannot exceed that of its members
	}
	for _, step := range steps {
		if err := run("ip", step...); err != nil {
			return err
		}
	}
	return nil
}

// gidPattern returns the GID of an address as sysfs prints it: all sixteen bytes in
// hexadecimal, in groups.
func gidPattern(a netip.Addr) string {
	b := a.As16() // for IPv4 the mapped form, which is the GID
	text := ""
	for i := 0; i < len(b); i += 2 {
		text += fmt.Sprintf(":%02x%02x", b[i], b[i+1])
	}
	return text[1:]
}
