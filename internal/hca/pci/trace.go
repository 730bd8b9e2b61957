package pci

import (
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// trace records something of the function that the adapter does not know: a command of the
// driver, or a queue of the Ethernet port.
func (d *Device) trace(object string, number uint32, action string, err error, fields ...adapter.Field) {
	t := d.cfg.Tracer
	if t == nil {
		return
	}
	r := &adapter.Record{Time: time.Now(), Kind: adapter.TraceObject, Object: object, Number: number, Action: action, Fields: fields}
	if err != nil {
		r.Kind, r.Reason, r.Err = adapter.TraceRefused, err.Error(), err
	}
	t.Trace(r)
}

// traceCommand records a command, unless the adapter has recorded it already.
func (f *firmware) traceCommand(c *call, slot int, err error) {
	if _, recorded := err.(*adapterError); f.dev.cfg.Tracer == nil || recorded {
		return
	}
	number := func(name string, n int) adapter.Field { return adapter.Field{Name: name, Number: uint64(n)} }
	f.dev.trace("command", uint32(c.Command), c.Command.String(), err,
		number("slot", slot), number("modifier", int(c.Mod)), number("input_bytes", len(c.In)), number("output_bytes", len(c.Out)))
}
