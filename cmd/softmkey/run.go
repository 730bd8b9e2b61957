package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// runFlags are the flags of run.
type runFlags struct {
	deviceFlags
	devices addrList
	names   []string

	strictMemory bool
	officer      string
	control      string
	summary      summaryFlag
	metrics      string
	view         string
	wire         bool
	noAssist     bool
	ownProcess   bool // this process does nothing but serve the run; false in tests
}

func newRun() *cobra.Command {
	c, _ := newRunFlags()
	return c
}

// newRunFlags returns the command and the values of its flags.
func newRunFlags() (*cobra.Command, *runFlags) {
	var f runFlags
	c := &cobra.Command{
		Use: "run [flags] -- PROGRAM [ARG...]",

		Annotations: map[string]string{runsProgram: "always"},

		GroupID: groupDevice,
		Short:   "Run a program with an mlx5 adapter",
		Long: `Run starts PROGRAM with an mlx5 RDMA adapter. libibverbs, libmlx5 and librdmacm are those
of the distribution, unchanged; softmkey answers in the place of the kernel and of the
adapter. The packets are RoCEv2 on the device's address, so that programs of several runs,
on one host or several, reach each other. Within one device, and between runs of one user
on one host, packets pass in memory, unless --wire, --pcap, --fault or --control is given.

Up to 64 runs of a user may name the same address with --device. Without --device there is
a device on the first free loopback address. A program that binds an address of the host
with rdma_cm, or resolves the address of a peer on another host, then gets one more device,
on the host's address. A listener on every address (0.0.0.0) is reached only at the
addresses of the run's devices: name the host's address with --device.

All processes that PROGRAM starts have the device, too. The exit status is PROGRAM's: 128
plus the number of the signal if one ended it, 127 if PROGRAM was not found, 126 if it
cannot be executed. It is 2 if softmkey itself could not start PROGRAM. When PROGRAM ends,
the processes that it left running are ended.

With --trace-format json each line of the trace is an object with the members time,
process, kind, object, number, action, reason (if there is one) and fields (if there are
some). docs/trace.schema.json describes them, and is stable from version 0.1 on. Numbers
are numbers; addresses and values of signatures, which may need 64 bits, are strings of
hexadecimal digits after 0x. Every request has an end: a completion, or a record of the
kind end if there is no completion.

Run needs Linux 5.19 or newer, and in a container the permission to use seccomp. It needs
no privilege: where hardware watchpoints (perf_event_open) are forbidden, doorbells are
polled. It is no security boundary.`,
		Example: `  softmkey run -- ibv_devinfo -v
  softmkey run -- ib_write_bw &
  softmkey run -- ib_write_bw 127.0.0.1
  softmkey run --device eth0 -- ib_write_bw
  mpirun -np 4 softmkey run --device auto -- ./program
  softmkey run --trace=trace.txt --trace-kind request,completion,signature -- ./program
  softmkey run --view -- ./program
  softmkey run --fault loss=1%,reorder=1%,seed=7 -- ./program
  softmkey run --crypto wrapped --kek 1=kek.key --credential 1=credential.key -- ./program
  softmkey run --crypto-profile single-block -- dpdk-test-crypto-perf ...`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(c, fmt.Errorf("PROGRAM is missing: usage: %s", usageLine(c)))
			}
			if f.trace == "-" && len(args) > 1 && args[1] == "--" {
				return usage(c, fmt.Errorf("--trace %s: the file needs an equals sign: --trace=%s", args[0], args[0]))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.ownProcess = true
			return f.run(args, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
		},
	}
	c.Flags().SetInterspersed(false)
	f.bind(c, "manual")
	flags := c.Flags()
	bindDevice(c, &f.devices, "device", "address of a device, the interface that has it (eth0), or auto for the address of the route to other hosts; once for each device (default the first free one from 127.0.0.1 on, and each address of the host that a program binds with rdma_cm)")
	flags.StringArrayVar(&f.names, "name", nil, "`NAME` of a device, in the order of --device (default mlx5_0, mlx5_1, ...)")
	flags.BoolVar(&f.strictMemory, "strict-memory", false, "report the calls by which programs unmap, move, discard or protect registered memory, and fail later transfers there (slower: each munmap, mremap, mprotect, madvise and mmap at a fixed address takes 10 µs and more)")
	flags.StringVar(&f.officer, "officer", "", "`PATH` of a socket for 'softmkey officer', which changes KEKs, credentials and DEKs while programs run")
	flags.StringVar(&f.control, "control", "", "`PATH` of a socket for 'softmkey control', which asks for faults of the devices while programs run; the commands of 'softmkey officer' use it, too. All packets then take the sockets of the devices")
	f.summary.bind(c, "run")
	flags.StringVar(&f.metrics, "metrics", "", "serve the devices' counters to Prometheus at `HOST:PORT`, path /metrics, while the program runs")
	flags.StringVar(&f.view, "view", "", "serve a page that shows the run as it goes at `HOST:PORT` (default with --view alone: a free port of 127.0.0.1), and print its address. The run ends with Ctrl-C after PROGRAM, so that the page can be read")
	flags.Lookup("view").NoOptDefVal = "127.0.0.1:0"
	flags.BoolVar(&f.wire, "wire", false, "send all packets through the sockets of the devices (default: on one host in memory, unless --pcap, --fault or --control is given)")
	flags.BoolVar(&f.noAssist, "no-assist", false, "do not load libsoftmkey-run.so into programs; requests of programs that spin take longer then")
	return c, &f
}

// programStatus is an error that ends softmkey with the exit status of the program that it ran.
type programStatus int

func (e programStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// addrList is a flag that may be given several times, each time with the address of a device.
type addrList []deviceFlag

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
	var a deviceFlag
	if err := a.Set(s); err != nil {
		return err
	}
	*l = append(*l, a)
	return nil
}

func (l *addrList) Type() string { return "ADDR" }
