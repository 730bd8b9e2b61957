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

// UserQP is the kind of users that are queue pairs, which the error of Close names by number.
const UserQP = "QP"

// Close marks the object closed, or returns EBUSY and names its users while it has any:
// queue pairs by the numbers that qps returns for u, the others by kind. qps may be nil. first is
// true for the call that closed the object; later calls do nothing and return false.
func (u *Users) Close(op string, qps func(*Users) []uint32) (first bool, err error) {
	u.mu.Lock()
	if u.total == 0 {
		defer u.mu.Unlock()
		first = !u.closed
		u.closed = true
		return first, nil
	}
	counts := maps.Clone(u.counts)
	u.mu.Unlock() // qps takes other locks
	var numbers []uint32
	if qps != nil {
		numbers = qps(u)
	}
	return false, inUse(op, counts, numbers)
}

// inUse is the error of an object with users, whose queue pairs have the given numbers, if they are known. A queue
// pair that uses the object for both directions counts twice, and is named once.
func inUse(op string, counts map[string]int, qps []uint32) error {
	const most = 4 // queue pairs that are named; more are counted
	var s []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		n := counts[kind]
		switch {
		case n == 0:
		case kind == UserQP && len(qps) > 0:
			slices.Sort(qps)
			for _, number := range qps[:min(len(qps), most)] {
				s = append(s, fmt.Sprintf("%s %#x", kind, number))
			}
			if more := len(qps) - most; more > 0 {
				s = append(s, fmt.Sprintf("%d more", more))
			}
		default:
			s = append(s, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return failure.New(op, syscall.EBUSY, "still in use: %s", strings.Join(s, ", "))
}

// Idle returns EBUSY and the kinds of the users while the object has any.
func (u *Users) Idle(op string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total > 0 {
		return inUse(op, u.counts, nil)
	}
	return nil
}
