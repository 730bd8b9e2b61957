//go:build linux

package uverbs

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// descriptorQuota bounds the descriptors that this process holds for each process of a
// program, so that a process that hoards them leaves enough for the rest. Each memory
// file is a mapping too, which the kernel also counts (vm.max_map_count).
type descriptorQuota struct {
	most int // descriptors for one process

	mu   sync.Mutex
	used map[int]int // by process id
}

// A quota is at most largestQuota, and at most one part in quotaShare of this process's
// limit of descriptors. The Go runtime fails at the kernel's default of 65530 mappings.
const (
	largestQuota = 4096
	quotaShare   = 8
)

// descriptors is the quota of every device: the limits are those of this process.
var descriptors = newQuota()

func newQuota() *descriptorQuota {
	q := &descriptorQuota{most: largestQuota, used: map[int]int{}}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		q.most = int(min(largestQuota, limit.Cur/quotaShare))
	}
	return q
}

// take counts n descriptors more for a process.
func (q *descriptorQuota) take(op string, pid, n int) error { return q.takeOf(op, pid, n, q.most) }

// takeQueue counts the descriptor of a queue. Queues get three quarters of the quota at
// most, since a library that cannot share a queue puts it in its own memory.
func (q *descriptorQuota) takeQueue(op string, pid int) error {
	return q.takeOf(op, pid, 1, q.most*3/4)
}

func (q *descriptorQuota) takeOf(op string, pid, n, most int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[pid]+n > most {
		return failure.New(op, unix.EMFILE, "process %d has %d descriptors of this kind: at most %d are", pid, q.used[pid], most)
	}
	q.used[pid] += n
	return nil
}

// give releases n units that take acquired.
func (q *descriptorQuota) give(pid, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[pid] -= n; q.used[pid] <= 0 {
		delete(q.used, pid)
	}
}
