//go:build linux

package uverbs

import (
	"os"
	"strings"
	"testing"
)

// TestCounters reads counters of a port before and after traffic, by both paths to them.
func TestCounters(t *testing.T) {
	d := newDevice(t, nil)
	root := t.TempDir()
	devices := []*Device{d}
	if err := WriteTree(root, devices); err != nil {
		t.Fatal(err)
	}
	const class = "/sys/class/infiniband/mlx5_0/ports/1/"
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(root + class + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	kept, err := os.Open(root + class + "counters/port_xmit_packets")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	for _, name := range []string{"counters/port_xmit_packets", "counters/symbol_error", "hw_counters/out_of_buffer"} {
		if v := read(name); v != "0" {
			t.Errorf("%s is %s before any packet", name, v)
		}
	}
	loop(t, d, 100)
	packets := d.Adapter().Engine().Port().Counters()
	if packets.SentPackets < 100 {
		t.Fatalf("%d packets were sent", packets.SentPackets)
	}
	if v := read("counters/port_xmit_packets"); v != "0" {
		t.Errorf("%s packets before the file was opened anew", v)
	}
	Refresh(root, devices, class+"counters/port_xmit_packets")
	if v := read("counters/port_xmit_packets"); len(v) < 3 {
		t.Errorf("%s packets", v)
	}
	b := make([]byte, 20)
	if n, err := kept.Read(b); err != nil || n < 4 {
		t.Errorf("the file that was open: %q, %v", b[:n], err)
	}
	if v := read("counters/port_rcv_data"); v != "0" {
		t.Errorf("%s units received, in a file that nobody opened", v)
	}
	Refresh(root, devices, class+"counters")
	if v := read("counters/port_rcv_data"); v == "0" {
		t.Error("no data were received")
	}
	Refresh(root, devices, "/sys/class/infiniband/mlx5_0/node_guid") // is no counter
}
