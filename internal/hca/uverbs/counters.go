//go:build linux

package uverbs

import (
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// The folders of a port with one file for each counter.
const (
	portCounters     = "counters"
	hardwareCounters = "hw_counters"
)

// counterFiles returns the counters of a port by the paths of their files below the port's folder. The
// names are those of the kernel's port counters and of mlx5's driver (counters.c), as far as the driver
// shows them for an Ethernet port without switchdev mode. Those of mechanisms that the device lacks
// (slow restart, ignored CNPs, faults of cables and switches) stay 0.
func counterFiles(c *rdma.Counters, f *adapter.Failures) map[string]uint64 {
	files := map[string]uint64{
		portCounters + "/port_xmit_data":         c.SentBytes / 4,
		portCounters + "/port_xmit_packets":      c.SentPackets,
		portCounters + "/port_rcv_data":          c.RecvBytes / 4,
		portCounters + "/port_rcv_packets":       c.RecvPackets,
		portCounters + "/port_rcv_errors":        c.Malformed + c.BadICRC + c.BadPKey,
		portCounters + "/port_xmit_discards":     c.SendErrors,
		portCounters + "/unicast_xmit_packets":   c.SentPackets - min(c.MulticastSent, c.SentPackets),
		portCounters + "/unicast_rcv_packets":    c.RecvPackets - min(c.MulticastReceived, c.RecvPackets),
		portCounters + "/multicast_xmit_packets": c.MulticastSent,
		portCounters + "/multicast_rcv_packets":  c.MulticastReceived,

		hardwareCounters + "/lifespan":                       lifespan,
		hardwareCounters + "/np_cnp_sent":                    c.CNPSent,
		hardwareCounters + "/np_ecn_marked_roce_packets":     c.ECNMarked,
		hardwareCounters + "/req_cqe_error":                  f.All(adapter.Requester),
		hardwareCounters + "/req_cqe_flush_error":            f.Of(adapter.Requester, prm.SyndromeFlush),
		hardwareCounters + "/req_remote_access_errors":       f.Of(adapter.Requester, prm.SyndromeRemoteAccess),
		hardwareCounters + "/req_remote_invalid_request":     f.Of(adapter.Requester, prm.SyndromeRemoteInvalid),
		hardwareCounters + "/req_rnr_retries_exceeded":       f.Of(adapter.Requester, prm.SyndromeRNRExceeded),
		hardwareCounters + "/req_transport_retries_exceeded": f.Of(adapter.Requester, prm.SyndromeRetryExceeded),
		hardwareCounters + "/resp_cqe_error":                 f.All(adapter.Responder),
		hardwareCounters + "/resp_cqe_flush_error":           f.Of(adapter.Responder, prm.SyndromeFlush),
		hardwareCounters + "/resp_local_length_error":        f.Of(adapter.Responder, prm.SyndromeLocalLength),
		hardwareCounters + "/resp_remote_access_errors":      c.AccessNAKsSent,
		hardwareCounters + "/rp_cnp_handled":                 c.CNPReceived,
		hardwareCounters + "/rx_dct_connect":                 c.DCTConnects,
		hardwareCounters + "/rx_icrc_encapsulated":           c.BadICRC,
	}
	for _, q := range adapter.QueueCounters {
		files[hardwareCounters+"/"+q.Name] = q.Of(c)
	}
	for _, name := range []string{
		"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
		"port_rcv_constraint_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
		"port_xmit_constraint_errors", "port_xmit_wait", "symbol_error", "VL15_dropped",
	} {
		files[portCounters+"/"+name] = 0
	}
	for _, name := range []string{"roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_ignored"} {
		files[hardwareCounters+"/"+name] = 0
	}
	return files
}

// lifespan is the time in milliseconds for which the kernel keeps counters that it has read.
const lifespan = 10

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
	for file, n := range counterFiles(&now, d.adapter.Failures()) {
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
