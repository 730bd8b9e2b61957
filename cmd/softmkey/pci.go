package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"
)

// pciFlags are the flags of pci.
type pciFlags struct {
	deviceFlags
	socket  string
	network string
	mac     parsed[net.HardwareAddr]
	control string
}

func newPCI() *cobra.Command {
	var f pciFlags
	c := &cobra.Command{
		Use:     "pci --socket PATH --net NETWORK [flags]",
		GroupID: groupDevice,
		Short:   "Give a virtual machine a ConnectX adapter",
		Long: `Pci is a PCI adapter for a virtual machine: a virtual function of a ConnectX-6 Dx. The
mlx5 driver of the guest's own kernel, unchanged, binds to it and makes an Ethernet
interface and an RDMA device (RoCEv2). QEMU 10.1 or newer reaches it over a UNIX socket,
with the device vfio-user-pci; the guest's memory must be shared.

NETWORK is the name of a tap device, which connects the guest with this host (creating one
needs CAP_NET_ADMIN), or unix:PATH, a UNIX socket that connects two adapters without any
privilege.

The guest's RDMA packets are ordinary frames of the network, with the guest's own
addresses: they reach other guests, softmkey's devices on the host, and adapters.
docs/pci.md has the whole command line of a virtual machine, and what is not emulated.

Pci serves one virtual machine at a time, until it ends; then the next one may connect. Do
not end this command while a virtual machine runs, because the guest then loses its
adapter, and QEMU may abort.`,
		Example: `  softmkey pci --socket /run/mlx5-a.sock --net tap0
  softmkey pci --socket a.sock --net unix:cable &
  softmkey pci --socket b.sock --net unix:cable`,
		Args: operands(),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.socket == "":
				return usage(c, fmt.Errorf("--socket is missing: usage: %s", usageLine(c)))
			case f.network == "":
				return usage(c, fmt.Errorf("--net is missing: usage: %s", usageLine(c)))
			}
			end := queueLines(c, false)
			return end(f.run(c.Context(), c.ErrOrStderr()))
		},
	}
	f.bind(c, "adapter") // a guest's kernel prints the values as those of an adapter
	flags := c.Flags()
	flags.StringVar(&f.socket, "socket", "", "`PATH` of the UNIX socket that the virtual machine connects to")
	flags.StringVar(&f.network, "net", "", "`NETWORK` of the adapter: a tap device, or unix:PATH")
	flags.StringVar(&f.control, "control", "", "`PATH` of a socket for 'softmkey control': the link goes and comes, the adapter or a queue pair fails")
	macs.bind(c, &f.mac, "mac", "MAC address of the adapter (default one that depends on the socket's path)")
	return c
}

// macs are flags whose value is the MAC address of one interface.
var macs = kind[net.HardwareAddr]{"MAC", parseMAC, net.HardwareAddr.String}

func parseMAC(s string) (net.HardwareAddr, error) {
	a, err := net.ParseMAC(s)
	switch {
	case err != nil:
		return nil, err
	case len(a) != 6 || a[0]&1 != 0 || [6]byte(a) == [6]byte{}: // as is_valid_ether_addr of Linux
		return nil, fmt.Errorf("%s: must be 6 bytes, neither all zero nor the address of a group", s)
	}
	return a, nil
}
