package fair

import (
	"net/netip"
	"slices"
)

// Queue is a queue in which peers take turns: each entry has a round, one later
// than that of the same peer's previous entry, and entries of earlier rounds
// come first. It is not safe for concurrent use.
type Queue[T comparable] struct {
	list  []turn[T]
	round uint64 // round of the last entry that Pop returned
}

type turn[T comparable] struct {
	peer  netip.Addr
	round uint64
	value T
}

// Len returns the number of entries.
func (q *Queue[T]) Len() int { return len(q.list) }

// Push adds an entry of a peer.
func (q *Queue[T]) Push(peer netip.Addr, v T) {
	round := q.round
	for _, e := range q.list {
		if e.peer == peer {
			round = e.round + 1
		}
	}
	i := slices.IndexFunc(q.list, func(e turn[T]) bool { return e.round > round })
	if i < 0 {
		i = len(q.list)
	}
	q.list = slices.Insert(q.list, i, turn[T]{peer, round, v})
}

// Pop removes and returns the first entry. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	e := q.list[0]
	q.list = slices.Delete(q.list, 0, 1)
	q.round = e.round
	return e.value
}

// Remove removes an entry and reports whether it was there.
func (q *Queue[T]) Remove(v T) bool { return q.RemoveFunc(func(w T) bool { return v == w }) }

// RemoveFunc removes the first entry for which is returns true, and reports whether there was
// one.
func (q *Queue[T]) RemoveFunc(is func(T) bool) bool {
	i := slices.IndexFunc(q.list, func(e turn[T]) bool { return is(e.value) })
	if i < 0 {
		return false
	}
	q.list = slices.Delete(q.list, i, i+1)
	return true
}

// Clear removes all entries and returns them in order.
func (q *Queue[T]) Clear() []T {
	var all []T
	for _, e := range q.list {
		all = append(all, e.value)
	}
	q.list = nil
	return all
}
