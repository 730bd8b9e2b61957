package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
)

// table is the objects of one kind, by their numbers. The zero value is not usable.
type table[T any] struct {
	kind    string
	numbers *number.Range
	objects map[uint32]T
}

func newTable[T any](kind string, first, last uint32) table[T] {
	return table[T]{kind: kind, numbers: number.From(first, last), objects: make(map[uint32]T)}
}

// add gives an object a number. ENOMEM: there are as many as there are numbers.
func (t *table[T]) add(x T) (uint32, error) {
	n := number.Next(t.numbers, t.objects)
	if n == 0 {
		return 0, failure.New("create", syscall.ENOMEM, "there are %d objects of kind %s already", len(t.objects), t.kind)
	}
	t.objects[n] = x
	return n, nil
}

// get returns an object. ENOENT: there is none with that number.
func (t *table[T]) get(n uint32) (T, error) {
	x, ok := t.objects[n]
	if !ok {
		return x, failure.New("find", syscall.ENOENT, "%s %#x does not exist", t.kind, n)
	}
	return x, nil
}

// remove takes an object away and returns it.
func (t *table[T]) remove(n uint32) (T, error) {
	x, err := t.get(n)
	delete(t.objects, n)
	return x, err
}
