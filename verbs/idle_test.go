package verbs_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// TestIdleMemory measures the heap of connected QPs that have not sent anything. Programs have
// tens of thousands of them, so what only an active QP needs is allocated when it is used.
func TestIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory counts")
	}
	// What earlier tests left is freed at any time, so that one round in a process may count more
	// or less than the QPs have.
	const most = 1355 // bytes of each
	rounds := make([]int, 5)
	for i := range rounds {
		rounds[i] = idleMemory(t)
	}
	slices.Sort(rounds)
	if each := rounds[len(rounds)/2]; each > most {
		t.Errorf("%d bytes in the median of %v, at most %d", each, rounds, most)
	} else {
		t.Log(rounds, "bytes")
	}
}

// idleMemory returns the heap that a connected QP takes, in bytes.
func idleMemory(t *testing.T) int {
	const n = 512 // QPs of each side
	a, b := inproc.Pair(nil)
	sides := []*side{
		openSideOn(t, a.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: a}, verbs.QPAttr{}),
		openSideOn(t, b.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: b}, verbs.QPAttr{}),
	}
	var before, after runtime.MemStats
	qps := make([]*verbs.QP, 0, 2*n+2)
	for i := range n + 1 {
		if i == 1 { // the first pair has allocated what all share
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		p := must[*verbs.QP](t)(sides[0].pd.NewQP(verbs.QPAttr{SendCQ: sides[0].cq}))
		q := must[*verbs.QP](t)(sides[1].pd.NewQP(verbs.QPAttr{SendCQ: sides[1].cq}))
		connectQPs(t, p, q, nil)
		qps = append(qps, p, q)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / (2 * n)
	for _, q := range qps {
		q.Close()
	}
	return each
}
