//go:build linux

package uverbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestQuota(t *testing.T) {
	q := &descriptorQuota{most: 8, used: map[int]int{}}
	for range 6 {
		if err := q.takeQueue("map", 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.takeQueue("map", 1); !errors.Is(err, unix.EMFILE) {
		t.Errorf("a queue in the last quarter: %v", err)
	}
	if err := q.take("open", 1, 2); err != nil {
		t.Errorf("the rest: %v", err)
	}
	if err := q.take("open", 1, 1); !errors.Is(err, unix.EMFILE) {
		t.Errorf("one more: %v", err)
	}
	if err := q.take("open", 2, 8); err != nil {
		t.Errorf("another process: %v", err)
	}
	q.give(1, 8)
	q.give(2, 8)
	if len(q.used) != 0 {
		t.Errorf("left: %v", q.used)
	}
}
