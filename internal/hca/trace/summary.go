package trace

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// Tee passes records to several tracers.
type Tee []adapter.Tracer

// Trace implements adapter.Tracer.
func (ts Tee) Trace(r *adapter.Record) {
	for _, t := range ts {
		t.Trace(r)
	}
}

// Summary counts the requests of a run by operation. It may be read after the devices are closed.
type Summary struct {
	summary.Table

	mu   sync.Mutex // guards the following fields
	open map[openID]time.Time
	bad  map[[2]string]uint64
}

// BadSignatures returns the number of bad blocks by kind ("bad guard") and domain ("memory", "wire").
func (s *Summary) BadSignatures() map[[2]string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.bad)
}

// openID names a request that has not ended.
type openID struct {
	context *adapter.Context
	qp      uint32
	request uint64
}

// Trace implements adapter.Tracer.
func (s *Summary) Trace(r *adapter.Record) {
	switch r.Kind {
	case adapter.TraceSignature:
		if r.Action != "rest" {
			s.BadSignature(1)
			s.badBlock(r)
		}
	case adapter.TraceTransport:
		if r.Action == "late" {
			s.Late(r.Fields[0].Number, time.Duration(r.Fields[1].Number)*time.Microsecond)
		}
	case adapter.TraceRequest:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open == nil {
			s.open = map[openID]time.Time{}
		}
		s.open[idOf(r)] = r.Time
	case adapter.TraceCompletion, adapter.TraceEnd:
		s.ended(r)
	}
}

// badBlock counts a bad block by its kind and domain.
func (s *Summary) badBlock(r *adapter.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == nil {
		s.bad = map[[2]string]uint64{}
	}
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Name == "domain" {
			s.bad[[2]string{r.Action, fmt.Sprint(f.Value)}]++
		}
	}
}

func idOf(r *adapter.Record) openID {
	return openID{context: r.Context, qp: r.Number, request: r.Fields[0].Number}
}

// ended counts a request that has ended.
func (s *Summary) ended(r *adapter.Record) {
	var opcode string
	var bytes, again uint64
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.Name {
		case "opcode":
			opcode = f.Text
		case "bytes":
			bytes = f.Number
		case "retransmitted":
			again = f.Number
		}
	}
	var latency time.Duration
	if !strings.HasPrefix(opcode, "RECV") {
		s.mu.Lock()
		if begin, timed := s.open[idOf(r)]; timed {
			latency = r.Time.Sub(begin)
		}
		delete(s.open, idOf(r))
		s.mu.Unlock()
	}
	outcome := summary.Failed
	switch r.Action {
	case rdma.StatusSuccess.String():
		outcome = summary.Succeeded
	case rdma.StatusWRFlushErr.String(), "dropped":
		outcome = summary.Flushed
	}
	s.Add(opcode, outcome, 1, bytes, latency)
	s.Resent(opcode, again)
}
