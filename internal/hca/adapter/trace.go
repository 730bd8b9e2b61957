package adapter

import (
	"time"
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
)

var kindNames = [...]string{"object", "state", "request", "completion", "event", "signature", "refused"}

// String returns the kind's name.
func (k RecordKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

// Field is a named value of a record.
type Field struct {
	Name  string
	Value any
}

// Record is one line of a trace. It holds nothing secret.
type Record struct {
	Time    time.Time
	Kind    RecordKind
	Context *Context
	Object  string // "qp", "cq", "mkey" and so on
	Number  uint32 // of the object
	Action  string // "create", "modify", "SEND", "success", an event's or status's name
	Reason  string // why it failed, in words; empty if it did not
	Fields  []Field
}

// Tracer takes records. Trace is called from any goroutine, in the middle of work, and
// must be quick.
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
		r.Reason = err.Error()
	}
	t.Trace(r)
}

// refused records a call that was refused.
func (c *Context) refused(object string, number uint32, action string, err error) {
	if err != nil {
		c.trace(TraceRefused, object, number, action, err)
	}
}
