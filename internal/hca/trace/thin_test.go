package trace

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// TestThin passes many requests of two QPs through one interval, of which one is destroyed. A bounded number of them is
// kept, each with its end, and everything that failed; all are counted. The next interval has room again.
func TestThin(t *testing.T) {
	var thin thinning
	keeps := func(kind adapter.RecordKind, object string, number uint32, action string, fields ...adapter.Field) bool {
		return thin.keeps(&adapter.Record{Time: time.Now(), Kind: kind, Object: object, Number: number, Action: action, Fields: fields}, func() int { return 7 })
	}
	request := func(id uint64) []adapter.Field {
		return []adapter.Field{{Name: "request", Number: id}, {Name: "opcode", Text: "SEND"}, {Name: "bytes", Number: 10}}
	}
	success, failure := rdma.StatusSuccess.String(), rdma.StatusRetryExcErr.String()
	const requests = 10_000
	for qp := uint32(1); qp <= 2; qp++ {
		keeps(adapter.TraceObject, "qp", qp, "create")
		kept := 0
		for i := range uint64(requests) {
			begun := keeps(adapter.TraceRequest, "qp", qp, "SEND", request(i)...)
			if ended := keeps(adapter.TraceCompletion, "qp", qp, success, request(i)...); begun != ended {
				t.Fatalf("request %d: its begin is kept: %t, its end: %t", i, begun, ended)
			}
			if begun {
				kept++
			}
		}
		if kept != savedEach {
			t.Errorf("%d requests are kept", kept)
		}
		keeps(adapter.TraceRequest, "qp", qp, "SEND", request(requests)...)
		if !keeps(adapter.TraceCompletion, "qp", qp, failure, request(requests)...) {
			t.Error("a failure is not kept")
		}
	}
	keeps(adapter.TraceTransport, "qp", 1, "retransmit", adapter.Field{Name: "psn", Value: &adapter.PSNRange{First: 1<<24 - 1, Last: 1}}) // three packets
	keeps(adapter.TraceObject, "qp", 2, "destroy")
	regions := 0
	for range 2 * recordsAll {
		if keeps(adapter.TraceObject, "mr", 1, "create") {
			regions++
		}
	}
	if keeps(adapter.TraceRefused, "qp", 9, "modify"); len(thin.qps) != 1 {
		t.Errorf("%d QPs are remembered", len(thin.qps))
	}
	var line struct {
		Rows []Counts
		Left int
	}
	if err := json.Unmarshal(thin.appendCounts(nil), &line); err != nil {
		t.Fatal(err)
	}
	if regions+line.Left != 2*recordsAll+1 || line.Left == 0 {
		t.Errorf("%d regions are kept, %d records left out", regions, line.Left)
	}
	rows := map[uint32]Counts{}
	for _, r := range line.Rows {
		rows[r.Number] = r
	}
	want := Counts{Process: 7, Number: 1, Begun: requests + 1, Ended: requests + 1, Failed: 1, Bytes: 10 * requests, Resent: 3}
	if rows[1] != want {
		t.Errorf("QP 1: %+v", rows[1])
	}
	if want.Number, want.Resent = 2, 0; rows[2] != want {
		t.Errorf("QP 2, which was destroyed: %+v", rows[2])
	}

	kept := 0
	for i := range uint64(100) { // requests without an end
		if keeps(adapter.TraceRequest, "qp", 1, "SEND", request(requests+1+i)...) {
			kept++
		}
	}
	if kept != requestsEach {
		t.Errorf("the next interval has %d requests", kept)
	}
	for range 2 * savedEach { // intervals in which nothing happens
		thin.appendCounts(nil)
	}
	for i := range uint64(100) {
		if keeps(adapter.TraceRequest, "qp", 1, "SEND", request(2*requests+i)...) {
			kept++
		}
	}
	if kept != openEach {
		t.Errorf("%d requests without an end are kept", kept)
	}
}
