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

// Close marks the object closed, or returns EBUSY and names its users while it has any:
// QPs by the numbers that qps returns, the others by kind. qps may be nil. first is true
// for the call that closed the object; later calls do nothing and return false.
func (u *Users) Close(op string, qps func() []uint32) (first bool, err error) {
	u.mu.Lock()
	if u.total == 0 {
		defer u.mu.Unlock()
		first = !u.closed
		u.closed = true
		return first, nil
	}
	used := u.list()
	u.mu.Unlock()
	if qps != nil {
		used = nameQPs(used, qps())
	}
	return false, failure.New(op, syscall.EBUSY, "still in use: %s", strings.Join(used, ", "))
}

// kindQP is the kind of users that are queue pairs.
const kindQP = "QP"

// list returns the kinds of the users with their numbers.
func (u *Users) list() []string {
	var s []string
	for _, kind := range slices.Sorted(maps.Keys(u.counts)) {
		if n := u.counts[kind]; n > 0 {
			s = append(s, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return s
}

// nameQPs puts the numbers of queue pairs in the place of their count, which counts a queue pair twice that uses
// the object for both directions. More than four are counted again.
func nameQPs(used []string, numbers []uint32) []string {
	const most = 4
	i := slices.IndexFunc(used, func(s string) bool { return strings.HasSuffix(s, " "+kindQP) })
	if i < 0 || len(numbers) == 0 {
		return used
	}
	slices.Sort(numbers)
	var names []string
	for _, n := range numbers[:min(len(numbers), most)] {
		names = append(names, fmt.Sprintf("%s %#x", kindQP, n))
	}
	if more := len(numbers) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return slices.Replace(used, i, i+1, names...)
}

// Idle returns EBUSY and the kinds of the users while the object has any.
func (u *Users) Idle(op string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total > 0 {
		return failure.New(op, syscall.EBUSY, "still in use: %s", strings.Join(u.list(), ", "))
	}
	return nil
}
