package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/vm"
)

// run serves virtual machines until the context ends.
func (f *pciFlags) run(ctx context.Context, errs io.Writer) (err error) {
	mac := f.mac.HardwareAddr
	if mac == nil {
		if mac, err = vm.MAC(f.socket); err != nil {
			return err
		}
	}
	log := &pciLog{errs: errs, verbose: f.verbose, began: time.Now()}
	if f.trace != "" {
		file, err := os.Create(f.trace)
		if err != nil {
			return err
		}
		log.trace = bufio.NewWriter(file)
		defer func() { err = cmp.Or(err, log.trace.Flush(), file.Close()) }()
	}
	link, err := frames.Open(f.network)
	if err != nil {
		return err
	}
	l, err := vm.Listen(f.socket)
	if err != nil {
		return errors.Join(err, link.Close())
	}
	fmt.Fprintf(errs, "softmkey: adapter %v at %s\n", mac, f.socket)
	return vm.Serve(ctx, l, vm.Options{
		Link: link, Device: pci.Config{MAC: mac, Trace: log.command, Queue: log.queue},
		Client: log.client, Refused: func(err error) { log.refused("%v", err) },
	})
}

// pciLog writes the trace of a virtual function (--trace), and with -v refused commands to
// standard error.
type pciLog struct {
	errs    io.Writer
	verbose bool
	began   time.Time

	mu    sync.Mutex // guards the following field
	trace *bufio.Writer
}

// line writes a line of the trace.
func (l *pciLog) line(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trace != nil {
		fmt.Fprintf(l.trace, "%10.6f  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// refused writes a line of the trace, and with -v to standard error.
func (l *pciLog) refused(format string, args ...any) {
	l.line(format, args...)
	if l.verbose {
		fmt.Fprintf(l.errs, "softmkey: %s\n", fmt.Sprintf(format, args...))
	}
}

func (l *pciLog) command(c *pci.CommandRecord) {
	if c.Err != nil {
		l.refused("%v (%#x) modifier %#x: %v", c.Command, uint16(c.Command), c.Modifier, c.Err)
		return
	}
	l.line("%v (%#x) modifier %#x: %d bytes, answered with %d", c.Command, uint16(c.Command), c.Modifier, len(c.In), len(c.Out))
}

func (l *pciLog) queue(object string, number uint32, err error) {
	l.refused("%s %#x: %v", object, number, err)
}

// client reports a virtual machine that comes or goes. The trace is complete up to there.
func (l *pciLog) client(comes bool, err error) {
	switch {
	case comes:
		l.line("a virtual machine has come")
	case err != nil:
		l.refused("the virtual machine was sent away: %v", err)
	default:
		l.line("the virtual machine has gone")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trace != nil {
		l.trace.Flush()
	}
}
