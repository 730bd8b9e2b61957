package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/control"
)

func newControl() *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:     "control SOCKET FAULT",
		GroupID: groupDevice,
		Short:   "Ask for faults of a run's devices",
		Long: `Control asks for faults of the devices of a run that was started with --control
SOCKET, so that the error paths of its programs can be tried:

  port down     the ports lose their links: no packet leaves or arrives, and requests
                in flight end when their retries are used up. Programs get the event
                IBV_EVENT_PORT_ERR; the state in ibv_query_port, sysfs and netlink is
                DOWN
  port up       the links are there again: IBV_EVENT_PORT_ACTIVE
  device fatal  the devices fail. Programs get IBV_EVENT_DEVICE_FATAL, and
                RDMA_CM_EVENT_DEVICE_REMOVAL for each rdma_cm_id. Their commands are
                EIO from then on, nothing answers the peers, and requests have no
                completions. A program can open the device anew
  gid change    the GIDs of the device's address move from the indexes 2 and 3 to 4
                and 5, or back, as if the address had been removed and added:
                IBV_EVENT_GID_CHANGE. Connections go on
  qp N error    queue pair N fails: IBV_EVENT_QP_FATAL, and its requests are flushed.
                N is the number in ibv_qp and in traces, decimal or hexadecimal after
                0x
  loss SHARE    a share of the packets that the devices send is lost: 5%, or 0.05;
                all of them are 100%
  clear         the ports are up, nothing is lost beyond --fault, and the GIDs have
                their first indexes. Programs whose device has failed must open it
                anew

The adapter of a virtual machine (pci --control SOCKET) knows the faults port, device
fatal, qp and clear: its guest's driver sees the link go, or resets the adapter.

A network interface that goes down (ip link set dev eth0 down) takes the port of its
device with it, without this command. Only the user who started the run, and root, may do
this.`,
		Example: `  softmkey run --control /tmp/control -- ./program
  softmkey control /tmp/control port down
  softmkey control /tmp/control loss 5%
  softmkey control /tmp/control --device mlx5_1 device fatal
  softmkey control /tmp/control qp 0x12ab error
  softmkey control /tmp/control clear`,
		ValidArgsFunction: completeSocket(completeFault),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage(c, fmt.Errorf("SOCKET and FAULT are needed: usage: %s", usageLine(c)))
			}
			if _, err := parseFault(args[1:]); err != nil {
				return usage(c, err)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := parseFault(args[1:])
			if err != nil {
				return err
			}
			r.Device = device
			if _, err := control.Do(args[0], r); err != nil {
				return fmt.Errorf("control: %w", withFlag(err))
			}
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", "`NAME` of the device, such as mlx5_0 (default all devices of the run)")
	return c
}

// parseFault reads a fault.
func parseFault(words []string) (*control.Request, error) {
	text := strings.Join(words, " ")
	op, ok := map[string]control.Op{
		"port down": control.PortDown, "port up": control.PortUp, "device fatal": control.DeviceFatal,
		"gid change": control.GIDChange, "clear": control.Clear,
	}[text]
	switch {
	case ok:
		return &control.Request{Op: op}, nil
	case words[0] == "qp" && len(words) == 3 && words[2] == "error":
		n, err := number.Parse(words[1], 24)
		if err != nil {
			return nil, fmt.Errorf("qp %s: must be a number below 0x1000000, in decimal or in hexadecimal after 0x", words[1])
		}
		return &control.Request{Op: control.QPError, ID: uint32(n)}, nil
	case words[0] == "loss" && len(words) == 2:
		share, err := parseShare(words[1])
		if err != nil {
			return nil, fmt.Errorf("loss %w", err)
		}
		return &control.Request{Op: control.Loss, Share: share}, nil
	}
	return nil, fmt.Errorf("%q is no fault: the faults are port down, port up, device fatal, gid change, qp N error, loss SHARE and clear", text)
}
