package fair

import (
	"slices"
	"testing"
)

// TestRoundRobin checks that a peer with one entry waits for at most one entry of
// each other peer, however many they have, and that the entries of a peer stay
// in order.
func TestRoundRobin(t *testing.T) {
	var q Queue[int]
	for i := range 5 {
		q.Push(peer(1), 10+i)
		q.Push(peer(2), 20+i)
	}
	if got := q.Pop(); got != 10 {
		t.Errorf("first %d", got)
	}
	q.Push(peer(3), 30)
	if !q.Remove(22) || q.Remove(22) {
		t.Error("an entry was not removed once")
	}
	q.Push(peer(1), 15)
	var got []int
	for range 3 {
		got = append(got, q.Pop())
	}
	q.Push(peer(3), 31)
	got = append(got, q.Clear()...)
	if want := []int{20, 30, 11, 21, 31, 12, 13, 23, 14, 24, 15}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if q.Len() != 0 {
		t.Errorf("%d entries after Clear", q.Len())
	}
}
