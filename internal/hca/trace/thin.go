package trace

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// The bounds of a thinned trace, for each interval between two writes.
const (
	// thinnedEvery is the interval. It is long enough that 1,000 busy QPs cost little.
	thinnedEvery = 200 * time.Millisecond
	// requestsEach and requestsAll are how many requests of a QP, and of all, a trace may show in an interval. What
	// is not used is saved, up to savedEach and savedAll, so that short programs are shown completely.
	requestsEach, savedEach = 4, 64
	requestsAll, savedAll   = 250, 2000
	// openEach bounds the requests of a QP that are shown and have not ended.
	openEach = 16
	// failuresEach bounds the failed requests, retransmissions and bad signatures of a QP in an interval, and
	// recordsAll the records of every other kind.
	failuresEach, recordsAll = 16, 2000
)

// thinning decides which records a thinned trace has: of each QP the first requests of an interval with their
// ends, everything that failed, all states and objects. The other requests are counted.
type thinning struct {
	qps     map[thinID]*thinned
	begun   int      // requests that were shown, less those that the intervals had room for
	records int      // of other kinds, in this interval
	gone    []Counts // of QPs that were destroyed in this interval
}

// thinID identifies a QP. Two contexts, also of one process, may have numbers in common.
type thinID struct {
	context *adapter.Context
	number  uint32
}

// thinned is the state of a QP in a thinned trace: which of its requests are shown, and its counts.
type thinned struct {
	open     []uint64 // the requests that are shown and have not ended
	begun    int      // as in thinning
	failures int      // in this interval
	changed  bool     // since the last line of counts
	counts   Counts
}

// Counts are the numbers of a QP since its creation. They are a row of the record with action "counts".
type Counts struct {
	Process  int    `json:"process"`
	Number   uint32 `json:"number"`
	Begun    uint64 `json:"begun"`    // send requests
	Ended    uint64 `json:"ended"`    // send requests, those that failed and that were flushed among them
	Received uint64 `json:"received"` // receive requests that ended
	Bytes    uint64 `json:"bytes"`    // of the requests that succeeded
	Failed   uint64 `json:"failed"`
	Flushed  uint64 `json:"flushed"`
	Resent   uint64 `json:"resent"` // packets
	Stalls   uint64 `json:"stalls"` // times that nothing could be sent
}

// keeps counts a record, and reports whether the trace has it. process is called once for each QP.
func (t *thinning) keeps(r *adapter.Record, process func() int) bool {
	if r.Object != "qp" {
		if r.Kind == adapter.TraceSignature {
			number, _ := field(r, "qp").Value.(uint32)
			if q := t.qps[thinID{r.Context, number}]; q != nil {
				return q.failed()
			}
		}
		return t.other()
	}
	id := thinID{r.Context, r.Number}
	q := t.qps[id]
	if q == nil {
		if r.Kind == adapter.TraceRefused || r.Kind == adapter.TraceEvent { // perhaps of a QP that is not there
			return t.other()
		}
		if t.qps == nil {
			t.qps = map[thinID]*thinned{}
		}
		q = &thinned{counts: Counts{Process: process(), Number: r.Number}}
		t.qps[id] = q
	}
	switch r.Kind {
	case adapter.TraceRequest:
		q.counts.Begun, q.changed = q.counts.Begun+1, true
		if len(q.open) == openEach || !t.room(q) {
			return false
		}
		q.open = append(q.open, r.Fields[0].Number)
		return true
	case adapter.TraceCompletion, adapter.TraceEnd:
		return t.ended(q, r)
	case adapter.TraceDoorbell:
		return false
	case adapter.TraceTransport:
		switch r.Action {
		case "retransmit":
			psns, _ := r.Fields[0].Value.(*adapter.PSNRange)
			q.counts.Resent, q.changed = q.counts.Resent+uint64((psns.Last-psns.First)&(1<<24-1))+1, true
		case "stall":
			q.counts.Stalls, q.changed = q.counts.Stalls+1, true
			return false
		case "resume":
			return false
		}
		return q.failed()
	case adapter.TraceObject:
		if r.Action == "destroy" {
			delete(t.qps, id) // another QP may get the number
			if q.changed && len(t.gone) < recordsAll {
				t.gone = append(t.gone, q.counts)
			}
		}
	}
	return t.other()
}

// room takes the room of a request of q, and reports whether there was some.
func (t *thinning) room(q *thinned) bool {
	if q.begun >= savedEach || t.begun >= savedAll {
		return false
	}
	q.begun++
	t.begun++
	return true
}

// failed counts a failure, and reports whether the interval has room for its record.
func (q *thinned) failed() bool {
	q.failures++
	return q.failures <= failuresEach
}

// other reports whether the interval has room for a record that belongs to no request.
func (t *thinning) other() bool {
	t.records++
	return t.records <= recordsAll
}

// ended counts a request of q that ended.
func (t *thinning) ended(q *thinned, r *adapter.Record) bool {
	c := &q.counts
	q.changed = true
	ofReceive := received(field(r, "opcode").Text)
	if ofReceive {
		c.Received++
	} else {
		c.Ended++
	}
	shown := false
	switch outcome(r) {
	case summary.Succeeded:
		c.Bytes += field(r, "bytes").Number
	case summary.Flushed:
		c.Flushed++
	default:
		c.Failed++
		shown = q.failed()
	}
	if ofReceive {
		return shown || t.room(q)
	}
	if at := slices.Index(q.open, r.Fields[0].Number); at >= 0 {
		q.open = slices.Delete(q.open, at, at+1)
		return true
	}
	return shown
}

// appendCounts appends the record of the QPs whose counts have changed in an interval, and begins the next one.
func (t *thinning) appendCounts(b []byte) []byte {
	rows := t.gone
	t.gone = nil
	for _, q := range t.qps {
		if q.changed {
			rows = append(rows, q.counts)
		}
		q.begun, q.failures, q.changed = max(q.begun-requestsEach, 0), 0, false
	}
	left := max(t.records-recordsAll, 0)
	t.begun, t.records = max(t.begun-requestsAll, 0), 0
	if len(rows) == 0 && left == 0 {
		return b
	}
	line, _ := json.Marshal(struct { // always can be
		Time   time.Time `json:"time"`
		Kind   string    `json:"kind"`
		Object string    `json:"object"`
		Action string    `json:"action"`
		Rows   []Counts  `json:"rows"`
		Left   int       `json:"left,omitempty"` // records of other kinds that had no room
	}{time.Now(), "counts", "trace", "counts", rows, left})
	return append(append(b, line...), '\n')
}
