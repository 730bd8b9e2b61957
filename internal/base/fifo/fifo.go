// Package fifo implements a queue that allocates only while it grows.
package fifo

// Queue is a first-in, first-out queue. The zero value is empty.
type Queue[T any] struct {
	items []T // the values begin at head
	head  int
}

// Len returns the number of values.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// All returns the values, the oldest first. The slice is valid until the next call of Push
// or Pop.
func (q *Queue[T]) All() []T { return q.items[q.head:] }

// Push adds values. It reuses the space of removed values before the queue
// grows.
func (q *Queue[T]) Push(v ...T) {
	if q.head > 0 && len(q.items)+len(v) > cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v...)
}

// Pop removes and returns the oldest value. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}
