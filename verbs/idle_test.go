package verbs_test

import (
	"runtime"
	"testing"

	"github.com/softmkey/softmkey/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// TestIdleMemory measures the heap of connected QPs that have not sent anything. Programs have
// tens of thousands of them, so what only an active QP needs is allocated when it is used.
func TestIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory counts")
	}
	const n, most = 512, 1331 // QPs of each side, bytes of each
	a, b := inproc.Pair(nil)
	sides := []*side{
		openSideOn(t, a.LocalAddr().Addr(), &verbs.Options{Conn: a}, verbs.QPAttr{}),
		openSideOn(t, b.LocalAddr().Addr(), &verbs.Options{Conn: b}, verbs.QPAttr{}),
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	qps := make([]*verbs.QP, 0, 2*n)
	for range n {
		p := must[*verbs.QP](t)(sides[0].pd.NewQP(verbs.QPAttr{SendCQ: sides[0].cq}))
		q := must[*verbs.QP](t)(sides[1].pd.NewQP(verbs.QPAttr{SendCQ: sides[1].cq}))
		to, back := q.Endpoint(), p.Endpoint()
		if err := p.Connect(to, nil); err != nil {
			t.Fatal(err)
		}
		if err := q.Connect(back, nil); err != nil {
			t.Fatal(err)
		}
		qps = append(qps, p, q)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / len(qps); each > most {
		t.Errorf("%d bytes, at most %d", each, most)
	} else {
		t.Log(each, "bytes")
	}
	for _, q := range qps {
		q.Close()
	}
}
