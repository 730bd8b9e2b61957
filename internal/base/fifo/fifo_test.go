package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRandomPushPop compares a queue with a slice, over random pushes and pops.
func TestRandomPushPop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var want []int
	for i := range 100_000 {
		if len(want) > 0 && r.IntN(2) == 0 {
			if got := q.Pop(); got != want[0] {
				t.Fatalf("step %d: %d, want %d", i, got, want[0])
			}
			want = want[1:]
		} else {
			for range r.IntN(3) {
				want = append(want, i)
				q.Push(i)
			}
		}
		if q.Len() != len(want) || !slices.Equal(q.All(), want) {
			t.Fatalf("step %d: %v, want %v", i, q.All(), want)
		}
	}
}

// TestBoundedMemory checks that a queue which is never empty does not grow, and that
// it keeps no reference to removed values.
func TestBoundedMemory(t *testing.T) {
	var q Queue[*int]
	q.Push(new(int), new(int), new(int))
	for range 1000 {
		q.Push(new(int))
		q.Pop()
	}
	if cap(q.items) > 8 {
		t.Errorf("room for %d values, with at most 4 in the queue", cap(q.items))
	}
	for i, v := range q.items[:cap(q.items)] {
		if v != nil && (i < q.head || i >= len(q.items)) {
			t.Errorf("entry %d holds a value that was taken", i)
		}
	}
}
