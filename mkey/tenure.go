package mkey

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// tenure is the time in which a key is in use: from the configuration of a free key until
// the key is freed. It counts the streams that are accessing the key's memory, so that
// freeing the key can wait for them. The count belongs to the tenure, not to the key:
// accesses under a later tenure cannot prolong the wait.
type tenure struct {
	over atomic.Bool // read by every access, written once

	_      [64]byte // inside, which every access writes, has a cache line of its own
	inside atomic.Int64
	_      [64]byte

	mu   sync.Mutex
	left sync.Cond // signaled when inside falls to 0 after over was set
}

func newTenure() *tenure {
	t := new(tenure)
	t.left.L = &t.mu
	return t
}

// enter begins an access to the key's memory. It returns false if the key was freed.
func (t *tenure) enter() bool {
	if t.over.Load() {
		return false
	}
	t.inside.Add(1)
	if t.over.Load() {
		t.leave()
		return false
	}
	return true
}

// leave ends an access that enter began.
func (t *tenure) leave() {
	if t.inside.Add(-1) == 0 && t.over.Load() {
		t.mu.Lock()
		t.left.Broadcast()
		t.mu.Unlock()
	}
}

// end ends the tenure and returns when no stream accesses the memory.
func (t *tenure) end() {
	t.over.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.inside.Load() > 0 {
		t.left.Wait()
	}
}

// visit is one access of a stream to memory: through its own key, if it has one, and the
// keys nested in it. None of them can be freed until the visit ends.
type visit struct {
	plan   *plan
	remote bool // a peer's stream ends with the configuration that granted it

	tenures []*tenure

	// The last piece that a cursor found, if that piece can only be copied.
	space   keydoor.Space
	addr, n uint64
}

// live returns an error if the stream may not continue.
func (v *visit) live(k *Key) error {
	if k == nil || !v.plan.tenure.over.Load() && (!v.remote || k.plan.Load() == v.plan) {
		return nil
	}
	return v.ended(k)
}

// ended returns the error of a stream that may not continue.
func (v *visit) ended(k *Key) error {
	if v.plan.tenure.over.Load() {
		return failure.New("mkey access", syscall.EINVAL, "key %#x was freed while the stream was open", k.num())
	}
	return failure.New("mkey access", syscall.EACCES, "key %#x was configured anew, which ends a peer's access", k.num())
}

// begin begins the access.
func (v *visit) begin(k *Key) error {
	if k == nil {
		return nil
	}
	t := v.plan.tenure
	if !t.enter() {
		return v.ended(k)
	}
	v.tenures = append(v.tenures, t)
	if v.remote && k.plan.Load() != v.plan {
		v.end()
		return v.ended(k)
	}
	return nil
}

// enter includes a key's tenure in the access, and returns false if the tenure
// has ended.
func (v *visit) enter(t *tenure) bool {
	if slices.Contains(v.tenures, t) {
		return true
	}
	if !t.enter() {
		return false
	}
	v.tenures = append(v.tenures, t)
	return true
}

// end ends the access.
func (v *visit) end() {
	for i, t := range v.tenures {
		t.leave()
		v.tenures[i] = nil
	}
	v.tenures = v.tenures[:0]
	v.space = nil
}
