package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Users counts the users of an object by their kind, so that closing the object can
// say which of them are left. A closed object takes no more users. The zero value is
// ready for use, and it is safe for concurrent use.
type Users struct {
	mu     sync.Mutex
	closed bool
	counts map[string]int
	total  int
}

// Enter counts one more user of a kind ("QP", "MR"). It returns EINVAL if the
// object is closed.
func (u *Users) Enter(op, kind string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return failure.New(op, syscall.EINVAL, "it was closed")
	}
	if u.counts == nil {
		u.counts = make(map[string]int, 1)
	}
	u.counts[kind]++
	u.total++
	return nil
}

// Leave counts one user of a kind less.
func (u *Users) Leave(kind string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts[kind]--
	u.total--
}

// Close marks the object closed, or returns EBUSY and the kinds of its users
// while it has any. first is true for the call that closed the object; later
// calls do nothing and return false.
func (u *Users) Close(op string) (first bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total > 0 {
		return false, failure.New(op, syscall.EBUSY, "still in use: %s", u.list())
	}
	first = !u.closed
	u.closed = true
	return first, nil
}

func (u *Users) list() string {
	var s []string
	for _, kind := range slices.Sorted(maps.Keys(u.counts)) {
		if n := u.counts[kind]; n > 0 {
			s = append(s, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return strings.Join(s, ", ")
}

// Idle returns EBUSY and the kinds of the users while the object has any.
func (u *Users) Idle(op string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total > 0 {
		return failure.New(op, syscall.EBUSY, "still in use: %s", u.list())
	}
	return nil
}
