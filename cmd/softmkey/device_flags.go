package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/session"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// deviceFlags are the flags of run and pci, which provide devices to programs and to virtual
// machines.
type deviceFlags struct {
	command     string // name of the command, for errors
	verbose     bool
	strict      bool
	reports     string
	profile     string
	crypto      string
	keks        []string
	credentials []string
	trace       string
	traceFormat string
	traceKinds  []string
	traceOnly   []string
	pcap        fileFlag
	fault       parsed[session.Faults]
}

// bind declares the flags. order is the default of --signature-errors.
func (f *deviceFlags) bind(c *cobra.Command, order string) {
	f.command = c.Name()
	flags := c.Flags()
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print the reason of every failed completion and refused command on standard error")
	flags.StringVar(&f.crypto, "crypto", "plaintext", "import `MODE` of DEKs: plaintext, or wrapped, with --kek and --credential")
	completeWords(c, "crypto", "plaintext", "wrapped")
	flags.StringArrayVar(&f.keks, "kek", nil, "`[ID=]FILE` of an import KEK (default ID 0)")
	flags.StringArrayVar(&f.credentials, "credential", nil, "`[ID=]FILE` of a credential of 40 bytes (default ID 0)")
	flags.StringVar(&f.trace, "trace", "", "write a line for every object, state, doorbell, request, retransmission, end, event, bad signature and refusal to standard error, or with =`FILE` to a file")
	flags.Lookup("trace").NoOptDefVal = "-"
	flags.StringVar(&f.traceFormat, "trace-format", "text", "`FORMAT` of the trace: text, json, or perfetto for ui.perfetto.dev and chrome://tracing")
	completeWords(c, "trace-format", trace.Formats...)
	flags.StringSliceVar(&f.traceKinds, "trace-kind", nil, "trace only the kinds of records in this `LIST`: object, state, request, completion, event, signature, refused, end, doorbell, transport")
	completeList(c, "trace-kind", trace.Kinds()...)
	flags.StringSliceVar(&f.traceOnly, "trace-object", nil, "trace only the objects in this `LIST`: qp, or qp=0x1234; also cq, mr, mkey, srq, ...")
	flags.Var(&f.pcap, "pcap", "record what the devices send and receive, as pcapng")
	flags.BoolVar(&f.strict, "strict", false, "let a memory key report one bad block for each configuration, as adapters do")
	flags.StringVar(&f.reports, "signature-errors", order, "`ORDER` of the values of a bad signature: manual (actual is computed, expected is stored, the offset is the block's first byte, as mlx5dv_mkey_check(3) says) or adapter (actual is stored, expected is computed, the offset is the field's last byte)")
	flags.StringVar(&f.profile, "crypto-profile", "multi-block", "`PROFILE` of the AES-XTS engine: multi-block (big-endian tweaks) or single-block (little-endian tweaks, for DPDK)")
	completeWords(c, "signature-errors", "manual", "adapter")
	completeWords(c, "crypto-profile", "multi-block", "single-block")
	annotate(c, readsFiles, "kek", "credential")
	annotate(c, writesFile, "trace", "pcap")
	networkFaults.bind(c, &f.fault, "fault", "damage what the devices send: loss=1%,duplicate=1%,reorder=1%,delay=1%,corrupt=1%,truncate=1%,flip=NTH,seed=N; timeout=strict leaves lost last packets to the timeouts of queue pairs")
	completeList(c, "fault", "loss=1%", "duplicate=1%", "reorder=1%", "delay=1%", "corrupt=1%", "truncate=1%", "flip=", "seed=", "timeout=strict")
}

func (f *deviceFlags) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", f.command, fmt.Errorf(format, args...))
}

// traces returns the traces that --trace and --verbose ask for.
func (f *deviceFlags) traces() (list []session.Trace, err error) {
	format := slices.Index(trace.Formats, f.traceFormat)
	if format < 0 {
		return nil, f.errorf("--trace-format %q: the formats are %s", f.traceFormat, strings.Join(trace.Formats, ", "))
	}
	kinds, err := trace.ParseKinds(f.traceKinds)
	if err != nil {
		return nil, f.errorf("%w", err)
	}
	objects, err := trace.ParseObjects(f.traceOnly)
	if err != nil {
		return nil, f.errorf("%w", err)
	}
	if f.trace == "" && (kinds != nil || objects != nil || f.traceFormat != "text") {
		return nil, f.errorf("--trace-kind, --trace-object and --trace-format choose what --trace writes: give --trace too")
	}
	if f.trace != "" {
		t := session.Trace{Options: trace.Options{Kinds: kinds, Objects: objects, Format: trace.Format(format)}}
		if f.trace != "-" {
			// The file has one direction, so that the end of a reader is an error of a write. A trace has
			// addresses and keys of memory: others may not read it, as they may not read a recording.
			t.Create = func() (io.WriteCloser, error) {
				return outfile.InPlace(f.trace, outfile.Options{Context: ending, Mode: 0o600})
			}
		}
		list = append(list, t)
	}
	if f.verbose && f.trace != "-" {
		list = append(list, session.Trace{Options: trace.Options{Reasons: true}})
	}
	return list, nil
}

// recorder returns the function that starts the recording of --pcap, or nil.
func (f *deviceFlags) recorder() func() (session.Recorder, error) {
	if f.pcap == "" {
		return nil
	}
	return func() (session.Recorder, error) { return pcap.Create(string(f.pcap), &pcap.Options{Context: ending}) }
}

// faults returns the faults of --fault, or nil.
func (f *deviceFlags) faults() *session.Faults {
	if !f.fault.given {
		return nil
	}
	return &f.fault.value
}

// options returns the options of the adapter that the flags describe.
func (f *deviceFlags) options() (o adapter.Options, err error) {
	if f.profile != "multi-block" && f.profile != "single-block" {
		return o, f.errorf("--crypto-profile %q: the profiles are multi-block and single-block", f.profile)
	}
	if f.reports != "manual" && f.reports != "adapter" {
		return o, f.errorf("--signature-errors %q: the orders are manual and adapter", f.reports)
	}
	o = adapter.Options{Strict: f.strict, SingleBlock: f.profile == "single-block", AdapterReports: f.reports == "adapter"}
	o.KeyStore, err = f.keyStore()
	return o, err
}

// keyStore returns the key store that --crypto, --kek and --credential describe.
func (f *deviceFlags) keyStore() (*dek.Store, error) {
	switch f.crypto {
	case "plaintext":
		if len(f.keks)+len(f.credentials) > 0 {
			return nil, f.errorf("--kek and --credential belong to --crypto wrapped")
		}
		return dek.NewStore(dek.Plaintext), nil
	case "wrapped":
	default:
		return nil, f.errorf("--crypto %q: the import modes are plaintext and wrapped", f.crypto)
	}
	store := dek.NewStore(dek.Wrapped)
	for _, list := range []struct {
		flag  string
		names []string
		parse func([]byte) ([]byte, error)
		add   func(uint32, []byte) error
	}{{"--kek", f.keks, dek.ParseKEK, store.AddKEK}, {"--credential", f.credentials, dek.ParseWrapped, store.AddCredential}} {
		for _, s := range list.names {
			id, name, err := numberedFile(s)
			if err != nil {
				return nil, f.errorf("%s %q: %w", list.flag, s, err)
			}
			key, err := readKeyFile(fileFlag(name), true, list.parse)
			if err != nil {
				return nil, err
			}
			err = list.add(id, key)
			clear(key)
			if err != nil {
				return nil, f.errorf("%s %q: %w", list.flag, s, reason(err))
			}
		}
	}
	return store, nil
}
