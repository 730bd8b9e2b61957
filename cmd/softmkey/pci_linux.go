package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/vm"
	"github.com/softmkey/softmkey/internal/hca/session"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/packetconn"
)

// run serves virtual machines until the context ends.
func (f *pciFlags) run(ctx context.Context, errs io.Writer) (err error) {
	cfg := pci.Config{MAC: f.mac.value}
	if cfg.MAC == nil {
		if cfg.MAC, err = vm.MAC(f.socket); err != nil {
			return err
		}
	}
	if cfg.Options, err = f.options(); err != nil {
		return err
	}
	traces, err := f.traces()
	if err != nil {
		return err
	}
	var tracers trace.Writers
	serves := false // if it never does, earlier recordings stay as they are
	defer func() { err = errors.Join(err, tracers.Close(serves)) }()
	for _, t := range traces {
		w, err := t.Open()
		if err != nil {
			return f.errorf("%w", err)
		}
		tracers = append(tracers, w)
	}
	if len(tracers) > 0 {
		cfg.Tracer = tracers
	}
	var recorder session.Recorder
	if start := f.recorder(); start != nil {
		if recorder, err = start(); err != nil {
			return err
		}
		defer func() {
			end := recorder.Close
			if !serves {
				end = recorder.Abort
			}
			err = errors.Join(err, end())
		}()
	}
	cfg.Wrap = func(c packetconn.Conn, index int) packetconn.Conn {
		return session.Network(c, recorder, f.faults(), index)
	}
	link, err := frames.Open(f.network)
	if err != nil {
		return fmt.Errorf("--net: %w", reason(err))
	}
	l, err := unixsocket.Listen("unix", f.socket)
	if err != nil {
		return cmp.Or(socketError("--socket", f.socket, err), link.Close())
	}
	record := func(kind adapter.RecordKind, action string, err error) {
		r := &adapter.Record{Time: time.Now(), Kind: kind, Object: "vm", Action: action, Err: err}
		if err != nil {
			r.Reason = err.Error()
		}
		tracers.Trace(r)
	}
	err = vm.Serve(ctx, l, vm.Options{
		Link: link, Device: cfg, Control: f.control,
		Ready: func() {
			serves = true
			message(errs, "adapter %v at %s", cfg.MAC, f.socket)
		},
		Client: func(comes bool, err error) {
			switch {
			case comes:
				record(adapter.TraceEvent, "comes", nil)
			case err != nil:
				record(adapter.TraceRefused, "is sent away", err)
			default:
				record(adapter.TraceEvent, "goes", nil)
			}
		},
		Down: func(err error) {
			message(errs, "--net %s is down: %v; trying again", f.network, reason(err))
		},
		Refused: func(err error) { record(adapter.TraceRefused, "asks", err) },
	})
	if !serves {
		return socketError("--control", f.control, err)
	}
	return err
}
