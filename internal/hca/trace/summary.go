package trace

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/hca/adapter"
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
	s.bad[[2]string{r.Action, fmt.Sprint(field(r, "domain").Value)}]++
}

func idOf(r *adapter.Record) openID {
	return openID{context: r.Context, qp: r.Number, request: r.Fields[0].Number}
}

// ended counts a request that has ended.
func (s *Summary) ended(r *adapter.Record) {
	opcode := field(r, "opcode").Text
	var latency time.Duration
	if !received(opcode) {
		s.mu.Lock()
		if begin, timed := s.open[idOf(r)]; timed {
			latency = r.Time.Sub(begin)
		}
		delete(s.open, idOf(r))
		s.mu.Unlock()
	}
	s.Add(opcode, outcome(r), 1, field(r, "bytes").Number, latency)
	s.Resent(opcode, field(r, "retransmitted").Number)
}
