package overrdma

import (
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// MaxData bounds the bytes of the buffers of all commands of a host that are executed at a time. The
// commands that need more wait.
const MaxData = 64 << 20

// MaxAllData bounds the bytes of the buffers of all hosts. Beyond it, a host has those of one command at a time.
const MaxAllData = 512 << 20

// maxIdle bounds the bytes of the buffers that the pool keeps for later.
const maxIdle = 32 << 20

// classOf returns the smallest class of buffers that has n bytes, and its size: 4 KiB times a power of
// two, and a 64th of it for fields.
func classOf(n int) (class, size int) {
	for size = 4096 / 64 * 65; size < n; size *= 2 {
		class++
	}
	return class, size
}

// pool keeps registered buffers that are not in use.
type pool struct {
	pd *verbs.PD

	mu   sync.Mutex // guards the following fields
	idle [16][]*verbs.MR
	kept int // bytes
}

func (p *pool) get(n int) (*verbs.MR, error) {
	class, size := classOf(n)
	p.mu.Lock()
	if list := p.idle[class]; len(list) > 0 {
		mr := list[len(list)-1]
		p.idle[class] = list[:len(list)-1]
		p.kept -= size
		p.mu.Unlock()
		return mr, nil
	}
	p.mu.Unlock()
	return p.pd.Register(make([]byte, size), rdma.LocalWrite)
}

func (p *pool) put(mr *verbs.MR) {
	class, size := classOf(mr.Len())
	p.mu.Lock()
	if keep := p.kept+size <= maxIdle; keep {
		p.idle[class] = append(p.idle[class], mr)
		p.kept += size
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	mr.Close()
}

// close closes the buffers. None is in use.
func (p *pool) close() {
	for _, list := range p.idle {
		for _, mr := range list {
			mr.Close()
		}
	}
}

// host is what the connections from one address share.
type host struct {
	all *atomic.Int64 // bytes of buffers of all hosts

	// The following fields are guarded by Server.mu.
	queues int
	open   []*connection // in the order of their requests

	mu    sync.Mutex // guards the following fields
	freed *sync.Cond
	used  int // bytes of buffers
}

func newHost(all *atomic.Int64) *host {
	h := &host{all: all}
	h.freed = sync.NewCond(&h.mu)
	return h
}

// take waits until n more bytes are within MaxData and MaxAllData, and counts them. The host waits for its own commands
// only: without any, it gets the bytes.
func (h *host) take(n int) {
	h.mu.Lock()
	for h.used+n > MaxData || !h.countLocked(n) {
		h.freed.Wait()
	}
	h.used += n
	h.mu.Unlock()
}

// countLocked counts n bytes among those of all hosts, unless there are too many and the host has some already.
func (h *host) countLocked(n int) bool {
	if h.all.Add(int64(n)) > MaxAllData && h.used > 0 {
		h.all.Add(-int64(n))
		return false
	}
	return true
}

func (h *host) give(n int) {
	h.mu.Lock()
	h.used -= n
	h.all.Add(-int64(n))
	h.mu.Unlock()
	h.freed.Broadcast()
}

// The class of the largest buffer must exist.
var _ = [1]struct{}{}[nvmet.MaxBuffer/(4096/64*65<<9)-1]
