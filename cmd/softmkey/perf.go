package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/bytesize"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/perf"
	"github.com/softmkey/softmkey/verbs"
)

func newPerf() *cobra.Command {
	var f perfFlags
	c := &cobra.Command{
		Use: `perf [flags]
  softmkey perf --listen ADDR[:PORT]
  softmkey perf --connect HOST[:PORT] [flags]`,
		GroupID: groupDevice,
		Short:   "Measure bandwidth, message rate and latency between two devices",
		Long: `Perf measures a connection in the manner of perftest: bandwidth and message rate with
--depth messages in flight, latency with one. It starts a second process on loopback
for the other side, unless --connect names a process that was started with --listen, or
--inproc keeps both sides in this process, on a network without sockets.

Bandwidth counts data that has arrived, without fields and headers. 'cores' is the
processor time that both processes use per second, 'resent' is the number of packets
that were retransmitted. The latency of send and write (with immediate) is half of a
ping-pong's round trip; that of read and fetch-add is the whole operation.

Each operation is measured with each of --keys, and each of those with each size:

    plain       plain regions on both sides
    t10dif      T10-DIF on the wire: the sender's key generates it, the receiver's
                checks and strips it
    crc32c      the same with CRC32C on blocks of 4096 bytes
    encrypt     the wire is encrypted: the sender encrypts, the receiver decrypts
    row-c       the sender generates T10-DIF and encrypts data and fields; the receiver
                stores the ciphertext in a plain region
    row-c-both  the same, and the receiver decrypts, checks and strips

or with the keys that --mem, --wire, --crypto and so on describe, as for copy. The
encryption key is a fixed one that protects nothing.

Two processes on one machine use half of its processors each, unless GOMAXPROCS is set.

With --peers, perf also measures, repeatedly, a TCP stream of iperf3 on the same machine,
to compare the bandwidth with.

A listener serves several clients at a time and ends when the last client that has
measured something disconnects. A client's device must have the address from which its
connection comes. With --cm on both sides, they meet by the connection manager (rdma_cm)
instead of TCP.`,
		Example: `  softmkey perf
  softmkey perf --op write --size 64K,1M --keys plain,t10dif,row-c --test bandwidth --peers
  softmkey perf --op send --size 64 --test latency --spin 50us
  softmkey perf --all --op read --json
  softmkey perf --op write --size 4096 --wire crc64:4096 --verify
  softmkey perf --listen 192.0.2.1
  softmkey perf --connect 192.0.2.1 --qps 4`,
		Args: operands(),
		RunE: f.run,
	}
	f.bind(c)
	return c
}

// namedKey is a configuration of the keys with its name in the table.
type namedKey struct {
	name  string
	terms keyplan.Terms
}

// namedKeys are the key configurations of --keys.
var namedKeys = []namedKey{
	{"plain", keyplan.Terms{}},
	{"t10dif", keyplan.Terms{Wire: "t10dif"}},
	{"crc32c", keyplan.Terms{Wire: "crc32c:4096"}},
	{"encrypt", keyplan.Terms{Crypto: "encrypt", PeerCrypto: "decrypt", Unit: "4096"}},
	{"row-c", keyplan.Terms{Wire: "t10dif", Crypto: "encrypt", Order: "before"}},
	{"row-c-both", keyplan.Terms{Wire: "t10dif", Crypto: "encrypt", Order: "before", PeerCrypto: "decrypt"}},
}

// perfFlags are the flags of perf.
type perfFlags struct {
	peerFlags
	ops, tests, named listFlag
	sizes             sizesFlag
	all               bool
	keys              keyFlags
	depth, qps        int
	inline            sizeFlag
	mtu               choiceFlag
	duration, spin    time.Duration
	iters             uint64
	verify            bool
	peers             bool
	json              bool
	inproc            bool
	summary           summaryFlag
	untilEOF          bool // end with standard input
	profile           fileFlag
}

func (f *perfFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	f.ops = listFlag{choices: perf.Ops(), values: []string{perf.Write, perf.Send, perf.Read}}
	f.tests = listFlag{choices: []string{perf.Bandwidth, perf.Latency}, values: []string{perf.Bandwidth, perf.Latency}}
	f.named = listFlag{values: []string{"plain"}}
	for _, k := range namedKeys {
		f.named.choices = append(f.named.choices, k.name)
	}
	f.sizes = sizesFlag{64, 4096, 64 << 10, 1 << 20}
	f.ops.bind(c, "op", "operations: write, send, read, fetch-add")
	f.tests.bind(c, "test", "tests: bandwidth, latency")
	f.named.bind(c, "keys", "key configurations, by name")
	flags.Var(&f.sizes, "size", "bytes of data in a message; K and M are 2^10 and 2^20")
	flags.BoolVarP(&f.all, "all", "a", false, "all sizes that are powers of two, from 2 to 8M")
	f.keys.bind(c)
	flags.IntVar(&f.depth, "depth", 64, "`N` messages in flight on each queue pair")
	flags.IntVar(&f.qps, "qps", 1, "`N` queue pairs")
	f.inline = 64
	flags.Var(&f.inline, "inline", "largest message in bytes that is sent inline, without a key")
	bindMTU(c, &f.mtu)
	flags.DurationVar(&f.duration, "time", time.Second, "how long each measurement takes")
	flags.Uint64Var(&f.iters, "iters", 0, "`N` messages in each measurement, instead of --time")
	flags.DurationVar(&f.spin, "spin", 0, "how long to poll for packets and completions before sleeping: lower latency for more processor time (default: a moment, for packets only, while they arrive quickly)")
	flags.BoolVar(&f.verify, "verify", false, "compare the data that has arrived with the data that was sent")
	flags.BoolVar(&f.peers, "peers", false, "measure iperf3's TCP as well")
	flags.BoolVar(&f.json, "json", false, "print JSON, one object a line")
	f.summary.bind(c, "perf")
	flags.StringVar(&f.listen, "listen", "", "be the other side for a process that connects to `ADDR[:PORT]`")
	flags.StringVar(&f.connect, "connect", "", "measure to the process that listens at `HOST[:PORT]`")
	f.peerFlags.bind(c)
	flags.BoolVar(&f.untilEOF, "until-eof", false, "end when standard input ends, too")
	must(flags.MarkHidden("until-eof"))
	flags.BoolVar(&f.inproc, "inproc", false, "measure within this process, without sockets")
	flags.Var(&f.device, "device", "address of this side's device (default: the address of the connection, or the next that is free)")
	flags.Var(&f.profile, "cpuprofile", "write a profile for 'go tool pprof'; the second process writes one with .server appended to the name")
	annotate(c, writesFile, "cpuprofile")
	exclusive(c, "listen", "connect", "inproc")
	exclusive(c, "size", "all")
	exclusive(c, "time", "iters")
}

// listFlag is a flag whose value is a list of words, each of which is one of the choices.
type listFlag struct{ choices, values []string }

// String implements pflag.Value.
func (f *listFlag) String() string { return strings.Join(f.values, ",") }

// Type implements pflag.Value.
func (f *listFlag) Type() string { return "LIST" }

// Set implements pflag.Value.
func (f *listFlag) Set(v string) error {
	f.values = nil
	for word := range strings.SplitSeq(v, ",") {
		if !slices.Contains(f.choices, word) {
			return fmt.Errorf("%q: must be one of %s", word, strings.Join(f.choices, ", "))
		}
		f.values = append(f.values, word)
	}
	return nil
}

func (f *listFlag) bind(c *cobra.Command, name, usage string) {
	c.Flags().Var(f, name, usage)
	completeWords(c, name, f.choices...)
}

// sizesFlag is a flag whose value is a list of sizes in bytes.
type sizesFlag []int

// String implements pflag.Value.
func (f *sizesFlag) String() string {
	var words []string
	for _, n := range *f {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

// Type implements pflag.Value.
func (f *sizesFlag) Type() string { return "LIST" }

// Set implements pflag.Value.
func (f *sizesFlag) Set(v string) error {
	*f = nil
	for word := range strings.SplitSeq(v, ",") {
		n, ok := bytesize.Parse(word)
		if !ok || n == 0 || n > 1<<30 {
			return fmt.Errorf("%q: must be 1 to 1024M bytes, such as 64, 64K or 1M", word)
		}
		*f = append(*f, int(n))
	}
	return nil
}

func (f *perfFlags) run(c *cobra.Command, _ []string) (err error) {
	if f.peers && (f.listen != "" || f.connect != "" || f.inproc) {
		return usage(c, errors.New("--peers measures this machine's loopback, with two processes that perf starts itself: use it without --listen, --connect and --inproc"))
	}
	if err := f.peerFlags.check(c); err != nil {
		return err
	}
	if f.profile != "" {
		stop, err := startProfile(string(f.profile))
		if err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, stop()) }()
	}
	if f.listen != "" {
		return f.serve(c)
	}
	cases, err := f.cases(c)
	if err != nil {
		return usage(c, err)
	}
	if err := f.summary.open(); err != nil {
		return err
	}
	defer f.summary.close()
	client, closeAll, err := f.client(c)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, closeAll()) }()
	err = f.measure(c.Context(), c.OutOrStdout(), client, cases)
	if table := f.summary.table(); table != nil {
		err = cmp.Or(err, f.summary.write(c.ErrOrStderr(), table.Report()))
	}
	return err
}

// startProfile begins a profile and returns the function that ends it.
func startProfile(name string) (stop func() error, err error) {
	out, err := outfile.Create(name, outfile.Options{Context: ending, RiskPowerLoss: true})
	if err != nil {
		return nil, err
	}
	var profile bytes.Buffer // StopCPUProfile drops errors of writing
	if err := pprof.StartCPUProfile(&profile); err != nil {
		out.Abandon()
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		if _, err := out.Write(profile.Bytes()); err != nil {
			out.Abandon()
			return out.Explain(err)
		}
		return out.Commit()
	}, nil
}

// cases returns the cases in the order of the table.
func (f *perfFlags) cases(c *cobra.Command) ([]perf.Case, error) {
	sizes := f.sizes
	if f.all {
		sizes = nil
		for n := 2; n <= 8<<20; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	var keys []namedKey
	if t := f.keys.terms(c); t != (keyplan.Terms{}) {
		if c.Flags().Changed("keys") {
			return nil, errors.New("--keys with flags that describe a key: use one or the other")
		}
		if _, err := keyplan.New(t, 0); err != nil {
			return nil, err
		}
		keys = []namedKey{{"as given", t}}
	} else {
		for _, k := range namedKeys {
			if slices.Contains(f.named.values, k.name) {
				keys = append(keys, k)
			}
		}
	}
	switch {
	case f.depth < 1 || f.depth > 1<<13:
		return nil, fmt.Errorf("--depth %d: must be 1 to %d", f.depth, 1<<13)
	case f.qps < 1 || f.qps > 1<<16:
		return nil, fmt.Errorf("--qps %d: must be 1 to %d", f.qps, 1<<16)
	case f.inline < 0 || f.inline > 1<<11:
		return nil, fmt.Errorf("--inline %d: must be 0 to %d", f.inline, 1<<11)
	case f.duration <= 0:
		return nil, fmt.Errorf("--time %v: must be more than 0", f.duration)
	}
	var cases []perf.Case
	for _, test := range f.tests.values {
		for _, op := range f.ops.values {
			for _, k := range keys {
				for _, size := range sizes {
					cs := perf.Case{Test: test, Op: op, Key: k.name, Terms: k.terms, Size: size, Depth: f.depth, QPs: f.qps, Inline: int(f.inline), Verify: f.verify}
					if test == perf.Latency {
						cs.Depth = 1
					}
					if op == perf.FetchAdd {
						if k.terms != (keyplan.Terms{}) {
							break
						}
						cs.Size = 8
					}
					cases = append(cases, cs)
					if op == perf.FetchAdd {
						break // all sizes would give the same case
					}
				}
			}
		}
	}
	return cases, nil
}

// openDevice opens this side's device for a connection.
func (f *perfFlags) openDevice(local netip.Addr) (*verbs.Device, error) {
	addr, search := f.ownDevice(local)
	return device.Open(addr, device.Options{Search: search, UDP: &udp.Options{Spin: f.spin}})
}

// serve is the server's side of a measurement. The first line of its output is the address at
// which it listens.
func (f *perfFlags) serve(c *cobra.Command) error {
	at, err := f.listenAddr(c)
	if err != nil {
		return err
	}
	dev, err := f.openDevice(at.Addr())
	if err != nil {
		return err
	}
	defer dev.Close()
	l, err := f.meet(at, dev)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "listening on %v, device %v\n", l.Addr(), dev.Addr())
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	if f.untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errParentDone)
		}()
	}
	server := perf.Server{Dev: dev, Spin: f.spin, PeerDevice: f.peerDevice.Addr}
	if err := server.Serve(ctx, l, sentAway(c)); !errors.Is(err, errParentDone) {
		return err
	}
	return nil
}

// errParentDone is the cause with which the process that perf has started ends.
var errParentDone = errors.New("the first process has ended the measurement")

// client connects to the other side, which it starts if there is none.
func (f *perfFlags) client(c *cobra.Command) (client *perf.Client, closeAll func() error, err error) {
	var side *otherSide
	switch {
	case f.inproc:
		side, err = f.sameProcess(c.Context())
	case f.connect != "":
		side, err = f.dial(c.Context())
	default:
		side, err = f.child(c.Context())
	}
	if err != nil {
		return nil, nil, err
	}
	mtu, _ := strconv.Atoi(f.mtu.value)
	client, err = perf.NewClient(c.Context(), side.conn, side.dev, perf.ClientOptions{
		MTU: mtu, Spin: f.spin, Retry: f.retry(), PeerDevice: f.peerDevice.Addr, Summary: f.summary.table(),
	})
	if err != nil {
		return nil, nil, cmp.Or(f.explain(c, err), side.close())
	}
	return client, side.close, nil
}

// measure runs all cases and prints each result as soon as it is known.
func (f *perfFlags) measure(ctx context.Context, out io.Writer, client *perf.Client, cases []perf.Case) error {
	t := perfTable{out: out, json: f.json, end: perfEnd{Command: "perf"}}
	peer := tcpPeer{duration: f.duration}
	bad := error(nil)
	for _, cs := range cases {
		if f.peers {
			peer.refresh(ctx, &cs, &t)
		}
		r, err := client.Run(ctx, cs, perf.Limit{Duration: f.duration, Messages: f.iters})
		var failed *perf.CaseError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &failed):
			t.failed(&cs, failed.Err)
			if !errors.Is(err, perf.ErrImpossible) {
				bad = cmp.Or(bad, err)
			}
			continue
		case err != nil:
			return err
		}
		t.result(&r, peer.ratio(&r))
		if r.Bad != "" {
			bad = cmp.Or[error](bad, &perf.CaseError{Case: &cs, Err: errors.New(r.Bad)})
		}
	}
	if f.json {
		encodeJSON(out, t.end)
	}
	return bad
}
