package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// The lines of the conversation. Every request has an answer.
type (
	hello struct {
		Program string `json:"program"`
		Version int    `json:"version"`
	}
	request struct {
		Kind  string       `json:"kind"`            // case, go or stop
		Case  *Case        `json:"case,omitempty"`  // kind case; a line with a remote for each queue pair follows the request
		MTU   int          `json:"mtu,omitempty"`   // kind case: path MTU in bytes
		Retry device.Retry `json:"retry,omitzero"`  // kind case
		Count uint64       `json:"count,omitempty"` // kind stop: number of messages that were sent
	}
	answer struct {
		Error string `json:"error,omitempty"`
		Bad   string `json:"bad,omitempty"` // after stop: the bad block that a key found
		CPU   int64  `json:"cpu,omitempty"` // after stop: processor time of the server in nanoseconds
		PID   int    `json:"pid,omitempty"` // after stop: process ID of the server

		Transport roce.Counters `json:"transport,omitzero"` // after stop: counters of the server's device
	}
)

const (
	program = "softmkey perf"
	version = 3

	kindCase = "case"
	kindGo   = "go"
	kindStop = "stop"
)

// Client runs measurements with a server.
type Client struct {
	conn *jsonline.Conn
	dev  *verbs.Device
	o    ClientOptions
}

// ClientOptions tune a Client. Zero values mean the defaults.
type ClientOptions struct {
	MTU        int           // path MTU in bytes; default: the largest that both devices can do
	Spin       time.Duration // time for which waiting for a completion polls before it blocks
	Retry      device.Retry  // how long both sides' connections wait for each other
	PeerDevice netip.Addr    // address of the server's device, if valid (see rendezvous.CheckDevice)

	Summary *summary.Table // counts the client's messages, if not nil
}

// NewClient begins a conversation with a server.
func NewClient(ctx context.Context, conn *jsonline.Conn, dev *verbs.Device, o ClientOptions) (*Client, error) {
	conn.Timeout = stepTimeout
	var theirs hello
	if err := conn.Tell(ctx, hello{program, version}); err != nil {
		return nil, err
	}
	if err := conn.Hear(ctx, &theirs); err != nil {
		return nil, fmt.Errorf("%w: %w", jsonline.ErrStranger, err)
	}
	return &Client{conn, dev, o}, theirs.check()
}

func (h *hello) check() error {
	if h.Program != program || h.Version != version {
		return fmt.Errorf("%w: the other side is %.80q version %d, this is %q version %d", jsonline.ErrStranger, h.Program, h.Version, program, version)
	}
	return nil
}

// ask sends a request and returns the answer.
func (c *Client) ask(ctx context.Context, r request) (a answer, err error) {
	if err = c.conn.Tell(ctx, r); err == nil {
		err = c.hear(ctx, &a)
	}
	return a, err
}

func (c *Client) hear(ctx context.Context, a *answer) error {
	if err := c.conn.Hear(ctx, a); err != nil {
		return err
	}
	if a.Error != "" {
		return &serverError{jsonline.Clean(a.Error)}
	}
	return nil
}

// serverError is the refusal of a server.
type serverError struct{ text string }

func (e *serverError) Error() string { return "the server: " + e.text }

// Limit says how long a case runs.
type Limit struct {
	Duration time.Duration
	Messages uint64 // if not 0, the number of messages, instead of Duration
}

// more returns a function that returns how many of n messages are still to be sent.
func (l Limit) more() func(n int) int {
	if l.Messages > 0 {
		left := l.Messages
		return func(n int) int {
			n = int(min(left, uint64(n)))
			left -= uint64(n)
			return n
		}
	}
	end := time.Now().Add(l.Duration)
	return func(n int) int {
		if time.Now().Before(end) {
			return n
		}
		return 0
	}
}

// ErrImpossible is wrapped by the error of a case that cannot be measured, for example because
// its keys do not allow the size of its messages.
var ErrImpossible = errors.New("not possible")

// CaseError is the error of one case. Other cases can be measured after it.
type CaseError struct {
	Case *Case
	Err  error
}

// Error names the case and the reason.
func (e *CaseError) Error() string {
	return fmt.Sprintf("%s of %s, %s, %d bytes: %v", e.Case.Test, e.Case.Op, e.Case.Key, e.Case.Size, e.Err)
}

// Unwrap returns the reason.
func (e *CaseError) Unwrap() error { return e.Err }

// Run measures a case. The error of a case that failed or is impossible is a *CaseError, and
// the client can be used for further cases. After any other error it cannot.
func (c *Client) Run(ctx context.Context, cs Case, l Limit) (Result, error) {
	r := Result{Case: cs}
	e, err := newEnd(c.dev, cs, true, c.o.Spin)
	if err != nil {
		return r, &CaseError{&cs, fmt.Errorf("%w: %w", ErrImpossible, err)}
	}
	defer e.close()
	e.requests = c.o.Summary
	if err := c.connect(ctx, e); err != nil {
		return r, err
	}
	r.MTU = e.links[0].qp.Query().PathMTU.Bytes()
	before := c.dev.Transport().Counters()
	cpu := cpuTime()
	if cs.Test == Latency {
		err = e.latency(ctx, l, &r)
	} else {
		err = e.bandwidth(ctx, l, &r)
	}
	if err != nil {
		e.requests.Add(e.opcode(), summary.Failed, 1, 0, 0)
		// Make the server ready for the next case. If it has failed as well, this
		// side's error is the more precise one.
		if _, stopErr := c.ask(ctx, request{Kind: kindStop}); stopErr != nil && !errors.As(stopErr, new(*serverError)) {
			return r, stopErr
		}
		return r, &CaseError{&cs, err}
	}
	cpu = cpuTime() - cpu
	a, err := c.ask(ctx, request{Kind: kindStop, Count: r.Messages})
	if err != nil {
		return r, err
	}
	if a.PID != os.Getpid() { // a server in this process reports the same processor time
		cpu += time.Duration(a.CPU)
	}
	r.CPU = cpu.Seconds()
	r.Transport, r.Peer = since(c.dev, before), a.Transport
	r.Paths = c.dev.Transport().Paths()
	r.Resent = r.Transport.Retransmitted + r.Peer.Retransmitted
	r.Bad = jsonline.Clean(a.Bad)
	if err := e.check(r.Messages > 0); err != nil {
		r.Bad = err.Error()
	}
	e.requests.Resent(e.opcode(), r.Resent)
	if r.Bad != "" {
		e.requests.BadSignature(1)
	}
	return r, nil
}

// since returns the differences between the counters of a device and earlier values.
func since(dev *verbs.Device, before roce.Counters) roce.Counters {
	now := dev.Transport().Counters()
	v, old := reflect.ValueOf(&now).Elem(), reflect.ValueOf(before)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() - old.Field(i).Uint())
		}
	}
	return now
}

// connect prepares the case on both sides.
func (c *Client) connect(ctx context.Context, e *end) error {
	r := request{Kind: kindCase, Case: &e.c, MTU: c.o.MTU, Retry: c.o.Retry}
	if err := c.conn.Tell(ctx, r); err != nil {
		return err
	}
	for _, r := range e.remotes() {
		if err := c.conn.Tell(ctx, r); err != nil {
			return err
		}
	}
	var a answer
	if err := c.hear(ctx, &a); err != nil {
		return err
	}
	theirs := make([]remote, len(e.links))
	for i := range theirs {
		if err := c.conn.Hear(ctx, &theirs[i]); err != nil {
			return err
		}
		if err := rendezvous.CheckDevice(c.conn, theirs[i].Endpoint.GID, c.o.PeerDevice); err != nil {
			return err
		}
	}
	if err := e.connect(ctx, theirs, &r); err != nil {
		return err
	}
	_, err := c.ask(ctx, request{Kind: kindGo})
	return err
}

// bandwidth keeps Depth messages in flight on every connection.
func (e *end) bandwidth(ctx context.Context, l Limit, r *Result) error {
	defer e.rest()
	// Messages are posted in batches with one completion each.
	batch := min(max(e.c.Depth/4, 1), 64)
	more := l.more()
	start := time.Now()
	for sending := true; ; {
		under := 0
		for _, link := range e.links {
			for sending && link.under+batch <= e.c.Depth {
				n := more(batch)
				if sending = n > 0; !sending {
					break
				}
				if err := link.post(e, n); err != nil {
					return err
				}
			}
			under += link.under
		}
		if under == 0 {
			break
		}
		// Wait until a connection has room for a batch.
		wcs, err := e.wait(ctx)
		if err != nil {
			return err
		}
		for i := range wcs {
			link := e.byQP[wcs[i].QPNum]
			link.under -= int(wcs[i].ID)
			link.count(e, wcs[i].ID)
			r.Messages += wcs[i].ID
		}
	}
	r.Seconds = time.Since(start).Seconds()
	r.Rate = float64(r.Messages) / r.Seconds
	r.GBps = r.Rate * float64(e.c.Size) / 1e9
	return nil
}

// maxSamples limits the memory for the times of round trips.
const maxSamples = 1 << 20

// latency sends one message at a time, on the connections in turn.
func (e *end) latency(ctx context.Context, l Limit, r *Result) error {
	defer e.rest()
	r.Whole = e.c.Op == Read || e.c.Op == FetchAdd
	trips := make([]time.Duration, 0, maxSamples)
	more := l.more()
	start := time.Now()
	last := start
	for i := 0; more(1) > 0; i++ {
		link := e.links[i%len(e.links)]
		var err error
		if r.Whole {
			err = link.post(e, 1)
		} else {
			err = link.ball(e)
		}
		if err != nil {
			return err
		}
		if _, err := e.wait(ctx); err != nil {
			return err
		}
		if !r.Whole {
			if err := link.receive(); err != nil {
				return err
			}
		}
		// The end of one trip is the beginning of the next.
		now := time.Now()
		if e.requests != nil {
			took := now.Sub(last)
			if !r.Whole {
				took /= 2
			}
			e.requests.Add(e.opcode(), summary.Succeeded, 1, uint64(e.c.Size), took)
		}
		if len(trips) < maxSamples {
			trips = append(trips, now.Sub(last))
		}
		last = now
		r.Messages++
	}
	r.Seconds = last.Sub(start).Seconds()
	if len(trips) == 0 {
		return nil
	}
	slices.Sort(trips)
	us := func(q float64) float64 {
		t := trips[min(int(q*float64(len(trips))), len(trips)-1)].Seconds() * 1e6
		if !r.Whole {
			t /= 2
		}
		return t
	}
	r.Min, r.Median, r.P99 = us(0), us(0.5), us(0.99)
	return nil
}
