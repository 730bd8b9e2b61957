package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// runFlags are the flags of run.
type runFlags struct {
	devices []addrFlag
	names   []string
	verbose bool
}

func newRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:     "run [flags] -- PROGRAM [ARG...]",
		GroupID: groupDevice,
		Short:   "Run a program that finds an mlx5 adapter",
		Long: `Run starts PROGRAM, which finds an mlx5 RDMA adapter: libibverbs, libmlx5 and librdmacm
are those of the distribution, unchanged, and softmkey answers in the place of the
kernel and of the adapter. The wire is RoCEv2 on the device's address, so that programs
of several runs, on one host or several, reach each other.

Everything that PROGRAM starts has the device too. The standard streams are PROGRAM's,
and so is the exit status: 128 and its number if a signal ended it. What PROGRAM has
left running is ended with it.

Linux 5.19 or newer is needed, and a container must allow seccomp. It is no security
boundary.`,
		Example: `  softmkey run -- ibv_devinfo -v
  softmkey run -- ib_write_bw &
  softmkey run -- ib_write_bw 127.0.0.1`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(c, fmt.Errorf("PROGRAM is missing: usage: %s", c.UseLine()))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(args) },
	}
	c.Flags().SetInterspersed(false)
	c.Flags().Var((*addrList)(&f.devices), "device", "address of a device; once for each device (default 127.0.0.1 or the next free one)")
	c.Flags().StringArrayVar(&f.names, "name", nil, "name of a device, in the order of --device (default mlx5_0, mlx5_1, ...)")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "say on standard error why requests and commands fail")
	return c
}

// programStatus ends the command with the exit status of a program that it ran.
type programStatus int

func (e programStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// addrList is a flag that may be given several times.
type addrList []addrFlag

func (l *addrList) String() string {
	text := ""
	for i, a := range *l {
		if i > 0 {
			text += ","
		}
		text += a.String()
	}
	return text
}

func (l *addrList) Set(s string) error {
	var a addrFlag
	if err := a.Set(s); err != nil {
		return err
	}
	*l = append(*l, a)
	return nil
}

func (l *addrList) Type() string { return "ADDR" }
