//go:build linux

package uverbs

import (
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/roce"
)

// The folders of a port with one file for each counter.
const (
	portCounters     = "counters"
	hardwareCounters = "hw_counters"
)

// counterFiles returns the counters of a port by file name. Names and meanings are those of
// mlx5's driver: the data counters count units of 4 bytes. Counters of
// cable faults, such as symbol_error, are always 0, because a software device has no cable.
// A counter of mlx5 that the device does not keep, such as that of multicast packets, has no
// file.
func counterFiles(c *roce.Counters) map[string]uint64 {
	files := map[string]uint64{
		portCounters + "/port_xmit_data":    c.SentBytes / 4,
		portCounters + "/port_xmit_packets": c.SentPackets,
		portCounters + "/port_rcv_data":     c.RecvBytes / 4,
		portCounters + "/port_rcv_packets":  c.RecvPackets,
		portCounters + "/port_rcv_errors":   c.Malformed + c.BadICRC + c.BadPKey,

		hardwareCounters + "/duplicate_request":          c.DuplicateRequests,
		hardwareCounters + "/local_ack_timeout_err":      c.Timeouts,
		hardwareCounters + "/np_cnp_sent":                c.CNPSent,
		hardwareCounters + "/np_ecn_marked_roce_packets": c.ECNMarked,
		hardwareCounters + "/out_of_buffer":              c.RNRSent + c.NoReceive,
		hardwareCounters + "/out_of_sequence":            c.OutOfSequence,
		hardwareCounters + "/packet_seq_err":             c.SequenceNAKsReceived,
		hardwareCounters + "/rnr_nak_retry_err":          c.RNRReceived,
		hardwareCounters + "/rp_cnp_handled":             c.CNPReceived,
		hardwareCounters + "/rx_icrc_encapsulated":       c.BadICRC,
	}
	for _, name := range []string{
		"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
		"port_rcv_constraint_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
		"port_xmit_constraint_errors", "port_xmit_discards", "port_xmit_wait", "symbol_error", "VL15_dropped",
	} {
		files[portCounters+"/"+name] = 0
	}
	return files
}

// port returns the folder of the device's port in the tree.
func (d *Device) port() string { return pciRoot + "/" + d.bdf() + "/infiniband/" + d.name + "/ports/1" }

// Refresh brings the tree below root up to date before a program opens the path at. It writes the
// counters of devices if that is a counter or a folder of counters. A program that keeps a counter's file open reads the
// new value from it.
func Refresh(root string, devices []*Device, at string) {
	folder, file := path.Split(at)
	switch {
	case at == classes:
		listClasses(root)
		return
	case file == portCounters || file == hardwareCounters:
		file = ""
	case !strings.HasSuffix(folder, "/"+portCounters+"/") && !strings.HasSuffix(folder, "/"+hardwareCounters+"/"):
		return
	}
	for _, d := range devices {
		d.refresh(root, file)
	}
}

// refresh writes one counter, or all if its name is empty.
func (d *Device) refresh(root, name string) {
	d.countersMu.Lock()
	defer d.countersMu.Unlock()
	now := d.adapter.Engine().Port().Counters()
	for file, n := range counterFiles(&now) {
		if name != "" && path.Base(file) != name {
			continue
		}
		// Counters only grow, so that the new text covers the old one, and a program that
		// reads meanwhile sees one of the two.
		f, err := os.OpenFile(root+d.port()+"/"+file, os.O_WRONLY, 0)
		if err != nil {
			continue // the tree is being removed
		}
		f.WriteString(strconv.FormatUint(n, 10) + "\n")
		f.Close()
	}
}
