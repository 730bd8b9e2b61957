package trace

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// timeline writes records as events of Chrome's trace format, which ui.perfetto.dev and
// chrome://tracing open: an array of objects. A program is a process, and a QP has tracks, which
// the format calls threads:
//
//   - one for its send requests, and more if several are under way, since slices of a track must
//     not overlap;
//   - one for what happens on the way: doorbells, retransmissions, bad signatures, and the times
//     in which nothing is sent;
//   - one for completions of receive requests. Their slices have no meaningful length, because
//     the trace does not know when they began.
//
// An arrow goes from a request to the receive request that its message takes at the peer, if that
// is in the trace, too. Times are microseconds since the first record.
type timeline struct {
	start  time.Time
	any    bool // an event was written
	named  map[int]bool
	qps    map[qpID]*qpTracks
	tracks int // that were given a number
}

// qpID identifies a QP in a trace, which may have the records of several processes.
type qpID struct {
	process int
	number  uint32
}

// qpTracks is a QP on a timeline.
type qpTracks struct {
	index         int
	lanes         []*openRequest // of send requests; nil: free
	tids          []int          // of the lanes
	events, recvs int            // tracks; 0: none yet
	stalled       time.Time      // zero: it sends
	cause         string
	local, remote string // addresses of the connection
}

// openRequest is a request that has not ended.
type openRequest struct {
	id    uint64
	begin time.Time
	args  []byte
}

func (t *timeline) event(b []byte) []byte {
	if !t.any {
		t.any = true
		return append(b, "[\n"...)
	}
	return append(b, ",\n"...)
}

// end appends the end of the array.
func (t *timeline) end(b []byte) []byte {
	if !t.any {
		b = append(b, '[')
	}
	return append(b, "\n]\n"...)
}

// head appends the members that every event has.
func (t *timeline) head(b []byte, ph, name string, pid, tid int, at time.Time) []byte {
	b = append(t.event(b), `{"ph":"`...)
	b = appendString(append(append(b, ph...), `","name":`...), name)
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(pid), 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), int64(tid), 10)
	b = append(b, `,"ts":`...)
	return appendMicros(b, max(at.Sub(t.start), 0))
}

// appendMicros appends a time in microseconds, to the nanosecond.
func appendMicros(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/1000), 10)
	return append(b, fmt.Sprintf(".%03d", d%1000)...)
}

// metadata names a process or a track.
func (t *timeline) metadata(b []byte, kind string, pid, tid int, name string, order int) []byte {
	b = t.head(b, "M", kind+"_name", pid, tid, t.start)
	b = append(appendString(append(b, `,"args":{"name":`...), name), "}}"...)
	b = t.head(b, "M", kind+"_sort_index", pid, tid, t.start)
	return append(b, fmt.Sprintf(`,"args":{"sort_index":%d}}`, order)...)
}

// track gives a track of a QP its number and name.
func (t *timeline) track(b []byte, id qpID, order int, format string, args ...any) ([]byte, int) {
	t.tracks++
	return t.metadata(b, "thread", id.process, t.tracks, fmt.Sprintf("QP %#x ", id.number)+fmt.Sprintf(format, args...), order), t.tracks
}

// append appends the events of a record.
func (t *timeline) append(b []byte, r *adapter.Record, pid int) []byte {
	if t.start.IsZero() {
		t.start = r.Time
		t.named, t.qps = map[int]bool{}, map[qpID]*qpTracks{}
	}
	if !t.named[pid] {
		t.named[pid] = true
		name := "softmkey"
		if pid != 0 {
			name = fmt.Sprintf("process %d", pid)
		}
		b = t.metadata(b, "process", pid, 0, name, len(t.named))
	}
	number := r.Number
	if r.Kind == adapter.TraceSignature {
		number, _ = field(r, "qp").Value.(uint32)
	} else if r.Object != "qp" {
		if r.Kind == adapter.TraceObject {
			return b
		}
		return t.instant(b, r, pid, 0, r.Object+" "+r.Action, "p")
	}
	id := qpID{pid, number}
	q := t.qps[id]
	if q == nil {
		q = &qpTracks{index: len(t.qps)}
		t.qps[id] = q
	}
	switch r.Kind {
	case adapter.TraceObject:
		if r.Action == "destroy" {
			delete(t.qps, id) // another QP may get the number
		}
		return b
	case adapter.TraceRequest:
		return t.begin(b, id, q, r)
	case adapter.TraceCompletion, adapter.TraceEnd:
		return t.finish(b, id, q, r)
	}
	if q.events == 0 {
		b, q.events = t.track(b, id, 1000*q.index, "events")
	}
	switch {
	case r.Kind == adapter.TraceState:
		for name, addr := range map[string]*string{"local": &q.local, "remote": &q.remote} {
			if f := field(r, name); f.Name != "" {
				*addr = fmt.Sprint(f.Value)
			}
		}
	case r.Kind == adapter.TraceTransport && r.Action != "retransmit" && r.Action != "late":
		if !q.stalled.IsZero() {
			b = t.head(b, "X", "stall: "+q.cause, pid, q.events, q.stalled)
			b = append(appendMicros(append(b, `,"cat":"stall","dur":`...), r.Time.Sub(q.stalled)), '}')
		}
		q.stalled = time.Time{}
		if r.Action == "stall" {
			q.stalled, q.cause = r.Time, r.Fields[0].Text
		}
		return b
	}
	name := r.Action
	switch r.Kind {
	case adapter.TraceDoorbell:
		name = "doorbell"
	case adapter.TraceState:
		name = "state " + r.Action
	}
	return t.instant(b, r, pid, q.events, name, "t")
}

// instant appends an event without a length. scope is t for a track, p for a process.
func (t *timeline) instant(b []byte, r *adapter.Record, pid, tid int, name, scope string) []byte {
	b = t.head(b, "i", name, pid, tid, r.Time)
	b = append(b, fmt.Sprintf(`,"s":%q,"cat":%q,"args":`, scope, r.Kind)...)
	return append(appendArgs(b, r), '}')
}

// appendArgs appends the fields of a record as an object, with its reason.
func appendArgs(b []byte, r *adapter.Record) []byte {
	b = appendMembers(append(b, '{'), r.Fields)
	if r.Reason != "" {
		if len(r.Fields) > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `"reason":`...), r.Reason)
	}
	return append(b, '}')
}

// begin gives a request a track until it ends.
func (t *timeline) begin(b []byte, id qpID, q *qpTracks, r *adapter.Record) []byte {
	lane := slices.Index(q.lanes, nil)
	if lane < 0 {
		lane = len(q.lanes)
		q.lanes = append(q.lanes, nil)
		name := "requests"
		if lane > 0 {
			name = fmt.Sprintf("requests, %d at a time", lane+1)
		}
		var tid int
		b, tid = t.track(b, id, 1000*q.index+2+lane, "%s", name)
		q.tids = append(q.tids, tid)
	}
	q.lanes[lane] = &openRequest{id: r.Fields[0].Number, begin: r.Time, args: appendArgs(nil, r)}
	return b
}

// finish appends the slice of a request that ended, and its end of an arrow.
func (t *timeline) finish(b []byte, id qpID, q *qpTracks, r *adapter.Record) []byte {
	opcode := field(r, "opcode").Text
	if received(opcode) {
		if q.recvs == 0 {
			b, q.recvs = t.track(b, id, 1000*q.index+1, "receives")
		}
		b = t.head(b, "X", opcode, id.process, q.recvs, r.Time)
		b = append(b, `,"cat":"completion","dur":0.1,"args":`...)
		b = append(appendArgs(b, r), '}')
		if last := field(r, "last_psn"); last.Name != "" && q.remote != "" {
			b = t.head(b, "f", "message", id.process, q.recvs, r.Time)
			b = append(b, fmt.Sprintf(`,"cat":"message","bp":"e","id":"%#x"}`, flow(q.remote, uint32(field(r, "source_qp").Number), last.Number))...)
		}
		return b
	}
	request := r.Fields[0].Number
	lane := slices.IndexFunc(q.lanes, func(o *openRequest) bool { return o != nil && o.id == request })
	if lane < 0 { // its begin is not in the trace
		return b
	}
	o := q.lanes[lane]
	q.lanes[lane] = nil
	b = t.head(b, "X", opcode, id.process, q.tids[lane], o.begin)
	b = appendMicros(append(b, `,"cat":"request","dur":`...), r.Time.Sub(o.begin))
	b = append(append(b, `,"args":{"posted":`...), o.args...)
	b = appendString(append(b, `,"status":`...), r.Action)
	b = append(append(b, `,"completion":`...), fmt.Sprint(r.Kind == adapter.TraceCompletion)...)
	b = append(append(b, `,"end":`...), appendArgs(nil, r)...)
	b = append(b, "}}"...)
	if psns, sent := field(r, "psn").Value.(*adapter.PSNRange); sent && q.local != "" && (strings.HasPrefix(opcode, "SEND") || opcode == "RDMA_WRITE_IMM") {
		b = t.head(b, "s", "message", id.process, q.tids[lane], o.begin)
		b = append(b, fmt.Sprintf(`,"cat":"message","id":"%#x"}`, flow(q.local, id.number, uint64(psns.Last)))...)
	}
	return b
}

// flow returns the name of an arrow: the message whose last packet has a PSN and comes from a QP
// of an address.
func flow(addr string, qp uint32, psn uint64) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode([]any{addr, qp, psn}) // a hash takes everything
	return h.Sum64()
}
