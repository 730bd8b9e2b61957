package summary

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	var table Table
	for i := range 1000 {
		table.Add("SEND", Succeeded, 1, 64, time.Duration(i+1)*time.Microsecond)
	}
	table.Add("RDMA_WRITE", Succeeded, 2, 4096, 0)
	table.Add("RDMA_WRITE", Failed, 1, 4096, time.Second)
	table.Add("RDMA_WRITE", Flushed, 3, 4096, time.Second)
	table.Resent("SEND", 5)
	table.BadSignature(2)
	r := table.Report()
	if len(r.Operations) != 2 || r.BadSignatures != 2 {
		t.Fatalf("%+v", r)
	}
	send, write := r.Operations[0], r.Operations[1]
	near := func(got, want float64) bool { return math.Abs(got-want) <= 0.07*want }
	if send.Operation != "SEND" || send.Count != 1000 || send.Bytes != 64000 || !near(send.MedianMicros, 500) || !near(send.NinetyNine, 990) || send.Retransmissions != 5 {
		t.Errorf("%+v", send)
	}
	if write.Count != 6 || write.Bytes != 4096 || write.MedianMicros != 0 || write.Errors != 1 || write.Flushed != 3 {
		t.Errorf("%+v", write)
	}
	var text strings.Builder
	if n, err := r.WriteTo(&text); err != nil || int(n) != text.Len() || strings.Count(text.String(), "\n") != 5 {
		t.Errorf("%v: %s", err, &text)
	}
	var none *Table // counts nothing
	none.Add("SEND", Succeeded, 1, 1, 1)
	none.Resent("SEND", 1)
	none.BadSignature(1)
}

// TestQuantiles checks that a quantile differs from the exact one by at most a
// thirty-second of its value.
func TestQuantiles(t *testing.T) {
	for d := time.Duration(1); d > 0 && d < math.MaxInt64/3; d = d*5/4 + 1 {
		var h histogram
		h.add(d, 3)
		if got := h.quantile(0.5); math.Abs(float64(got-d)) > float64(d)/32 {
			t.Errorf("%v: %v", d, got)
		}
	}
}
