package adapter

import (
	"fmt"
	"time"

	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// RecordKind is the kind of a [Record].
type RecordKind uint8

// The kinds of records.
const (
	TraceObject     RecordKind = iota // an object was made, changed or destroyed
	TraceState                        // a QP changed its state
	TraceRequest                      // a work request was decoded and begins
	TraceCompletion                   // a completion was written
	TraceEvent                        // an asynchronous or completion event
	TraceSignature                    // a bad signature
	TraceRefused                      // a command or request was refused
	TraceEnd                          // a send request ended without a completion
	TraceDoorbell                     // a doorbell posted send requests
	TraceTransport                    // packets were sent again, sending stopped or went on, or the device's thread was late
)

var kindNames = [...]string{"object", "state", "request", "completion", "event", "signature", "refused", "end", "doorbell", "transport"}

// String returns the kind's name.
func (k RecordKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

// Field is a named value of a record: Value, or Text if there is no Value, or Number if there is
// neither. Texts and numbers that every request has are not put into Value, which would allocate
// memory for each.
type Field struct {
	Name   string
	Value  any
	Text   string
	Number uint64
}

func value(name string, v any) Field { return Field{Name: name, Value: v} }

func count(name string, n uint64) Field { return Field{Name: name, Number: n} }

// Record is one line of a trace. It holds nothing secret. The record and its fields are valid
// during the call of [Tracer] only.
type Record struct {
	Time    time.Time
	Kind    RecordKind
	Context *Context
	Object  string // "qp", "cq", "mkey" and so on
	Number  uint32 // of the object
	Action  string // "create", "modify", "SEND", "success", an event's or status's name
	Reason  string // why it failed, in words; empty if it did not
	Err     error  // of which Reason is the text; nil if it did not fail
	Fields  []Field
}

// Tracer takes records. Trace is called from any goroutine, in the middle of work: it must not
// block.
type Tracer interface {
	Trace(r *Record)
}

// tracing reports whether a tracer is set, so that callers build fields only if needed.
func (c *Context) tracing() bool { return c.dev.cfg.Tracer != nil }

// trace records an action on an object. err is why it failed, or nil.
func (c *Context) trace(kind RecordKind, object string, number uint32, action string, err error, fields ...Field) {
	t := c.dev.cfg.Tracer
	if t == nil {
		return
	}
	r := &Record{Time: time.Now(), Kind: kind, Context: c, Object: object, Number: number, Action: action, Fields: fields}
	if err != nil {
		r.Reason, r.Err = err.Error(), err
	}
	t.Trace(r)
}

// refused records a call that was refused: err is why, or nil if it was not. It returns err.
func (c *Context) refused(object string, number uint32, action string, err error) error {
	if err != nil {
		c.trace(TraceRefused, object, number, action, err)
	}
	return err
}

// changed records a change of an object, or why it was refused. It returns err.
func (c *Context) changed(object string, number uint32, action string, err error, fields ...Field) error {
	if err == nil {
		c.trace(TraceObject, object, number, action, nil, fields...)
	}
	return c.refused(object, number, action, err)
}

// notCreated is deferred by the calls that make an object. It records why one was refused.
func notCreated(c *Context, object string, err *error) { c.refused(object, 0, "create", *err) }

// work traces the requests of one QP. Its record is used again for each request, so that a trace
// allocates no memory for requests that succeed. The engine's lock of the QP guards it.
type work struct {
	Record
	psns PSNRange // the value of a field
}

// PSNRange is a range of packet sequence numbers. First and Last belong to it.
type PSNRange struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// String returns "FIRST-LAST".
func (r *PSNRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// psn adds the PSNs of count packets.
func (w *work) psn(first, count uint32) {
	const mask = 1<<24 - 1
	w.psns = PSNRange{first, (first + count - 1) & mask}
	w.Fields = append(w.Fields, Field{Name: "psn", Value: &w.psns})
}

func (w *work) text(name, v string) { w.Fields = append(w.Fields, Field{Name: name, Text: v}) }

func (w *work) number(name string, v uint64) {
	w.Fields = append(w.Fields, Field{Name: name, Number: v})
}

// begin starts a record of q.
func (w *work) begin(q *QP, kind RecordKind, action string) {
	w.Record = Record{Time: time.Now(), Kind: kind, Context: q.ctx, Object: "qp", Number: q.number, Action: action, Fields: w.Fields[:0]}
}

// end passes the record to the tracer. err is why the request failed, or nil.
func (w *work) end(err error) {
	if err != nil {
		w.Reason, w.Err = err.Error(), err
	}
	w.Context.dev.cfg.Tracer.Trace(&w.Record)
}

// traceEnd records the end of a send request that moved bytes: TraceCompletion or TraceEnd.
// written reports whether the completion queue had room.
func (q *QP) traceEnd(kind RecordKind, slot *sendSlot, bytes uint32, c *engine.Completion, written bool) {
	w := &q.work
	w.begin(q, kind, c.Status.String())
	w.number("request", slot.req.ID)
	w.text("opcode", slot.op.String())
	w.number("bytes", uint64(bytes))
	if c.Packets > 0 {
		w.psn(c.PSN, c.Packets)
	}
	if c.Again > 0 {
		w.number("retransmitted", uint64(c.Again))
	}
	if !written {
		w.Fields = append(w.Fields, value("written", false))
	}
	w.end(c.Err)
}

// traceReceived records the completion of the receive request that was posted as number id to
// its queue.
func (q *QP) traceReceived(id uint64, c *engine.Completion, written bool) {
	w := &q.work
	w.begin(q, TraceCompletion, c.Status.String())
	w.number("request", id)
	w.text("opcode", c.Op.String())
	w.number("bytes", uint64(c.ByteLen))
	if c.Status == rdma.StatusSuccess {
		w.number("last_psn", uint64(c.PSN))
		w.number("source_qp", uint64(c.SrcQP))
	}
	if !written {
		w.Fields = append(w.Fields, value("written", false))
	}
	w.end(c.Err)
}

// traceDropped records the end of the send requests that were taken and have not ended: the QP
// goes to RESET, and nothing else reports them.
func (q *QP) traceDropped() {
	for _, slot := range q.sq.taken.All() {
		w := &q.work
		w.begin(q, TraceEnd, "dropped")
		w.number("request", slot.req.ID)
		w.text("opcode", slot.op.String())
		w.end(nil)
	}
}

// traceWaiting records the send requests that were posted and that a stop holds.
func (q *QP) traceWaiting() {
	s := &q.sq
	id := s.requests
	for _, ctrl := range s.each(s.rung) {
		if ctrl.Opcode != prm.OpSetPSV {
			id++
		}
		w := &q.work
		w.begin(q, TraceTransport, "waiting")
		w.number("request", id)
		w.text("opcode", ctrl.Opcode.String())
		w.end(nil)
	}
	s.forget() // the program may change what waits
}

// traceDoorbell records that the send queue has requests up to index, index not included.
func (q *QP) traceDoorbell(index uint16) {
	w := &q.work
	w.begin(q, TraceDoorbell, "send")
	w.number("index", uint64(index))
	w.end(nil)
}

// Retransmitted implements engine.TraceFront.
func (f *front) Retransmitted(psn, count uint32) {
	q := (*QP)(f)
	if !q.ctx.tracing() {
		return
	}
	w := &q.work
	w.begin(q, TraceTransport, "retransmit")
	w.psn(psn, count)
	w.end(nil)
}

// Unchecked implements engine.TraceFront.
func (f *front) Unchecked(key *engine.MKey, rest uint64) {
	q := (*QP)(f)
	if !q.ctx.tracing() {
		return
	}
	q.ctx.trace(TraceSignature, "mkey", key.Number(), "rest", fmt.Errorf("the transfer ends inside a block: its last %d bytes have no field, and nothing checks them", rest),
		value("qp", q.number), count("bytes", rest))
}

// Stalled implements engine.TraceFront.
func (f *front) Stalled(why roce.Stall) {
	q := (*QP)(f)
	if !q.ctx.tracing() {
		return
	}
	w := &q.work
	switch why {
	case roce.StallNone:
		w.begin(q, TraceTransport, "resume")
	case roce.StallRNR:
		w.begin(q, TraceTransport, "stall")
		w.text("cause", "rnr")
	case roce.StallWindow:
		w.begin(q, TraceTransport, "stall")
		w.text("cause", "window")
	}
	w.end(nil)
}

// bitName is the name of a bit.
type bitName struct {
	bit  uint8
	name string
}

// bitNames returns the names of the bits that are set.
func bitNames(bits uint8, names []bitName) Names {
	set := Names{}
	for _, n := range names {
		if bits&n.bit != 0 {
			set = append(set, n.name)
		}
	}
	return set
}
