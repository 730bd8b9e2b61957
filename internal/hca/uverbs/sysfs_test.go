//go:build linux

package uverbs

import (
	"os"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestCounters reads counters of a port before and after traffic, by both paths to them.
func TestCounters(t *testing.T) {
	d := newDevice(t)
	root := t.TempDir()
	devices := []*Device{d}
	fatal.If(t, WriteTree(root, devices))
	const class = "/sys/class/infiniband/mlx5_0/ports/1/"
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(root + class + name)
		fatal.If(t, err)
		return strings.TrimSpace(string(b))
	}
	kept, err := os.Open(root + class + "counters/port_xmit_packets")
	fatal.If(t, err)
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

// TestHardwareCounters reads the counters of mlx5's driver after requests that succeed, fail and are
// flushed. The kernel has all files from the start.
func TestHardwareCounters(t *testing.T) {
	d := newDevice(t)
	root := t.TempDir()
	devices := []*Device{d}
	fatal.If(t, WriteTree(root, devices))
	const port = "/sys/class/infiniband/mlx5_0/ports/1/"
	for folder, names := range map[string]string{
		"hw_counters": "duplicate_request implied_nak_seq_err lifespan local_ack_timeout_err np_cnp_sent np_ecn_marked_roce_packets out_of_buffer out_of_sequence " +
			"packet_seq_err req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request req_rnr_retries_exceeded req_transport_retries_exceeded " +
			"resp_cqe_error resp_cqe_flush_error resp_local_length_error resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans roce_adp_retrans_to roce_slow_restart " +
			"roce_slow_restart_cnps roce_slow_restart_trans rp_cnp_handled rp_cnp_ignored rx_atomic_requests rx_dct_connect rx_icrc_encapsulated rx_read_requests rx_write_requests",
		"counters": "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors multicast_rcv_packets multicast_xmit_packets " +
			"port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors " +
			"port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets unicast_xmit_packets",
	} {
		entries, err := os.ReadDir(root + port + folder)
		fatal.If(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if all := strings.Join(got, " "); all != names {
			t.Errorf("%s has\n%s, want\n%s", folder, all, names)
		}
	}
	p := newProgram(t, d)
	pd, u := p.pd(), p.uar()
	c := p.cq(u, 16)
	q := p.qp(u, c, pd)
	addr, key := p.region(pd, 64)
	for i := range 10 {
		q.write(uint64(i), addr, key, true)
		c.wait()
	}
	// A key of no region. The QP is its own peer, so that it fails before the NAK arrives.
	q.write(10, addr, key+0x100, true)
	c.wait()
	q.write(11, addr, key, true) // flushed
	c.wait()
	Refresh(root, devices, port+"hw_counters")
	Refresh(root, devices, port+"counters")
	for file, want := range map[string]string{
		"hw_counters/rx_write_requests": "11", "hw_counters/rx_read_requests": "0", "hw_counters/lifespan": "10",
		"hw_counters/req_cqe_error": "2", "hw_counters/req_remote_access_errors": "0", "hw_counters/req_cqe_flush_error": "2",
		"hw_counters/resp_remote_access_errors": "1", "hw_counters/req_remote_invalid_request": "0", "counters/multicast_xmit_packets": "0",
	} {
		b, err := os.ReadFile(root + port + file)
		if got := strings.TrimSpace(string(b)); got != want || err != nil {
			t.Errorf("%s is %s, want %s (%v)", file, got, want, err)
		}
	}
}
