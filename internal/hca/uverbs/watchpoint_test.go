//go:build linux

package uverbs

import (
	"os"
	"testing"
)

// TestSpots shares out the watchpoints of a process that has opened the device twice and
// rings more registers than a thread can watch.
func TestSpots(t *testing.T) {
	pid := os.Getpid()
	first, second := registers{pid, []uint64{0x1800, 0x1900, 0x1020}}, registers{pid, []uint64{0x2800, 0x2900, 0x2020}}
	count := func(chosen map[spot]bool) map[int]int {
		n := map[int]int{}
		for s := range chosen {
			n[s.thread]++
		}
		return n
	}
	if chosen, complete := spots([]registers{first}, nil); !complete || count(chosen)[pid] != 3 {
		t.Errorf("3 registers: %d are watched, complete %t", count(chosen)[pid], complete)
	}
	have := map[spot]*watchpoint{{pid, 0x2020}: {}, {pid, 0x2900}: {}, {pid, 0x3000}: {}}
	chosen, complete := spots([]registers{first, second}, have)
	if complete || !chosen[spot{pid, 0x2020}] || !chosen[spot{pid, 0x2900}] || chosen[spot{pid, 0x3000}] {
		t.Errorf("6 registers: %v, complete %t", chosen, complete)
	}
	for thread, n := range count(chosen) {
		if n != mostSpots {
			t.Errorf("thread %d has %d watchpoints, want %d", thread, n, mostSpots)
		}
	}
}

// TestTooManyWatchpoints counts the watchpoints of processes with one thread.
func TestTooManyWatchpoints(t *testing.T) {
	list := func(pids, contexts, addrs int) (all []registers) {
		for pid := range pids {
			for range contexts {
				all = append(all, registers{pid: pid, addrs: make([]uint64, addrs)})
			}
		}
		return all
	}
	for _, v := range []struct {
		pids, contexts, addrs int
		want                  bool
	}{
		{mostPoints, 1, 1, false},
		{mostPoints + 1, 1, 1, true},
		{mostPoints / mostSpots, 10, 5, false}, // a thread has no more than mostSpots
		{mostPoints/mostSpots + 1, 2, 2, true},
		{1, 1000, 5, false},
	} {
		all := list(v.pids, v.contexts, v.addrs)
		if got := tooMany(all); got != v.want {
			t.Errorf("%+v: %v", v, got)
		}
		if w := (watcher{}); v.want && (w.arm(all) || w.points != nil) {
			t.Errorf("%+v: armed", v)
		}
	}
}
