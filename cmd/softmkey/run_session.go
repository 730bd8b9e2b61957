package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/hca/session"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/internal/tool/metrics"
	"github.com/softmkey/softmkey/internal/tool/view"
)

// run runs the program with the given standard streams. It returns a programStatus, or the error
// because of which the program could not run.
func (f *runFlags) run(args []string, streams [3]*os.File) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	if err := f.summary.open(); err != nil {
		return err
	}
	defer f.summary.close()
	lines := lineout.New(streams[2], linesLost)
	defer lines.Close()
	cfg.Warn = func(err error) { message(lines, "%v", err) }
	var page *view.Server
	if f.view != "" {
		if page, err = f.serveView(args); err != nil {
			return err
		}
		defer page.Close()
		cfg.Traces = append(cfg.Traces, session.Trace{Options: trace.Options{Format: trace.JSON, Thin: true}, Create: func() (io.WriteCloser, error) {
			message(lines, "run: this run as a page: %s", page.URL())
			return open{page}, nil
		}})
	}
	cfg.Args, cfg.Stdin, cfg.Stdout, cfg.Stderr = args, streams[0], streams[1], streams[2]
	status, err := session.Run(cfg)
	var device *session.DeviceError
	if errors.As(err, &device) {
		err = fmt.Errorf("run: --device %w", device)
	}
	if f.summary.given() && status >= 0 {
		err = cmp.Or(err, f.summary.write(streams[2], cfg.Summary.Report()))
	}
	if page != nil && status >= 0 {
		page.End(fmt.Sprintf("the program has ended with status %d", status))
		if ending.Err() == nil {
			message(lines, "run: the program has ended with status %d; the page stays until Ctrl-C", status)
			<-ending.Done()
		}
	}
	if err == nil && status != 0 {
		err = programStatus(status)
	}
	return err
}

// open is a Writer that the end of a trace leaves open.
type open struct{ io.Writer }

// Close implements io.Closer.
func (open) Close() error { return nil }

// serveView serves the page of a run at the address of --view.
func (f *runFlags) serveView(args []string) (*view.Server, error) {
	s, err := view.Serve(f.view, strings.Join(args, " "))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("run: --view %s: another program listens there: name another port", f.view)
	case err != nil:
		return nil, fmt.Errorf("run: --view %s: must be HOST:PORT with an address of this host: %w", f.view, err)
	}
	return s, nil
}

// config returns the configuration of the run that the flags describe.
func (f *runFlags) config() (session.Config, error) {
	cfg := session.Config{
		Alone:        f.ownProcess,
		Advice:       func(a netip.Addr) string { return fmt.Sprintf("the flag --device %v gives it one", a) },
		StrictMemory: f.strictMemory,
		Officer:      f.officer, Control: f.control,
	}
	var err error
	if cfg.Devices, err = f.deviceList(); err != nil {
		return cfg, err
	}
	if cfg.Traces, err = f.traces(); err != nil {
		return cfg, err
	}
	if cfg.Options, err = f.options(); err != nil {
		return cfg, err
	}
	if f.summary.given() || f.metrics != "" {
		cfg.Summary = new(trace.Summary)
	}
	cfg.Wire, cfg.Record, cfg.Faults = f.wire, f.recorder(), f.faults()
	if !f.noAssist {
		if cfg.Library = library(); cfg.Library == "" && f.verbose {
			message(os.Stderr, "run: %s is neither beside softmkey nor in ../lib/softmkey ('make build' makes it): programs that spin while they wait are answered later", libraryName)
		}
	}
	if f.metrics != "" {
		requests := cfg.Summary
		cfg.Counters = func(read func() []session.Counters) (io.Closer, error) { return f.serveMetrics(read, requests) }
	}
	return cfg, nil
}

// libraryName is the file that run loads into programs.
const libraryName = "libsoftmkey-run.so"

// library returns the path of that file: SOFTMKEY_LIBRARY, beside this executable, or in lib/softmkey of its prefix.
// It returns nothing if there is none, or if the dynamic linker could not read the path.
func library() string {
	paths := []string{os.Getenv("SOFTMKEY_LIBRARY")}
	if exe, err := os.Executable(); err == nil {
		folder := filepath.Dir(exe)
		paths = append(paths, filepath.Join(folder, libraryName), filepath.Join(filepath.Dir(folder), "lib", "softmkey", libraryName))
	}
	for _, path := range paths {
		if i, err := os.Stat(path); err == nil && i.Mode().IsRegular() && !strings.ContainsAny(path, " :") { // which separate the names of LD_PRELOAD
			return path
		}
	}
	return ""
}

// serveMetrics serves the counters of a run's devices, and what their requests did, at the address of --metrics.
func (f *runFlags) serveMetrics(read func() []session.Counters, requests *trace.Summary) (io.Closer, error) {
	s, err := metrics.Serve(f.metrics, version(), func() metrics.State {
		state := metrics.State{Operations: requests.Times(), BadBlocks: requests.BadSignatures()}
		for _, d := range read() {
			device := metrics.Device{Name: d.Name, Addr: d.Addr, Counters: d.Counters, QPs: map[string]int{}, Keys: d.Keys, Regions: d.Regions}
			for state, n := range d.QPs {
				device.QPs[state.String()] = n
			}
			state.Devices = append(state.Devices, device)
		}
		return state
	})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("run: --metrics %s: another program listens there: name another port", f.metrics)
	case err != nil:
		return nil, fmt.Errorf("run: --metrics %s: must be HOST:PORT with an address of this host: %w", f.metrics, err)
	}
	return s, nil
}

// deviceList returns the devices of --device and --name.
func (f *runFlags) deviceList() ([]session.Device, error) {
	addrs := f.devices
	if len(addrs) == 0 {
		addrs = addrList{{}}
	}
	if len(f.names) > len(addrs) {
		return nil, fmt.Errorf("run: --name %s: there are %d names, but only %s: give a --device for each", f.names[len(addrs)], len(f.names), count(uint64(len(addrs)), "device"))
	}
	var list []session.Device
	for i, a := range addrs {
		if slices.ContainsFunc(addrs[:i], func(b deviceFlag) bool { return a.Addr == b.Addr }) {
			return nil, fmt.Errorf("run: --device %v is given twice", a.Addr)
		}
		name := fmt.Sprintf("mlx5_%d", i)
		if i < len(f.names) {
			name = f.names[i]
		}
		if name == "" || strings.ContainsAny(name, "/ \n") || name[0] == '.' || len(name) > 63 {
			return nil, fmt.Errorf("run: --name %q: a device's name has 1 to 63 characters without slashes and spaces and does not begin with a dot", name)
		}
		list = append(list, session.Device{Name: name, Addr: a.Addr, Follow: a.named})
	}
	return list, nil
}
