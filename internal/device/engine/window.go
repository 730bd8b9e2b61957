package engine

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// WindowType is the type of a memory window. The values are those of enum ibv_mw_type.
type WindowType uint8

// The types of memory windows.
const (
	WindowType1 WindowType = 1 // binding again replaces the earlier binding
	WindowType2 WindowType = 2 // freed by LOCAL_INV or SEND with invalidate before it is bound again
)

// owner is the number of the QP that bound a window of type 2, or that a key belongs to: only its peer reaches the memory, and
// only requests of this QP and its peer free the window (type 2B of the standard). It is 0 for
// windows that are not bound, and for keys of all QPs.
type owner struct{ atomic.Uint32 }

// check returns an error if a window or key belongs to another QP than qp.
func (o *owner) check(qp *QP, number uint32) error {
	if of := o.Load(); of != 0 && of != qp.Num() {
		return failure.New("use a key", syscall.EACCES, "window %#x of type 2 was bound on QP %#x and cannot be used through QP %#x", number, of, qp.Num())
	}
	return nil
}

// Window is a memory window: a number under which a peer reaches a part of a
// region, with rights of its own. It uses a memory key with a layout of one
// entry, and is revoked like a memory key. Binding changes the tag of the
// number.
type Window struct {
	numbered
	typ WindowType

	owner owner // of type 2

	mu     sync.Mutex // guards the following fields
	region *Region    // region to which the window is bound, or nil
	closed bool
}

// windowRights are the rights that a window can grant. Programs give LocalWrite, too, which
// grants nothing: only a peer uses a window.
const windowRights = rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

// NewWindow makes a memory window, which is not bound (ibv_alloc_mw(3)).
func (pd *PD) NewWindow(t WindowType) (*Window, error) {
	const op = "allocate a memory window"
	if t != WindowType1 && t != WindowType2 {
		return nil, failure.New(op, syscall.EINVAL, "type %d: must be 1 or 2", t)
	}
	w := &Window{typ: t}
	a := keydoor.Attr{Flags: uint32(mkey.RemoteInvalidate), MaxEntries: 1}
	if err := w.enter(op, "MW", pd, keyEntry{window: w}, a); err != nil {
		return nil, err
	}
	return w, nil
}

// Window returns the window of the domain whose number has the index of number, or nil.
// The tag is ignored.
func (pd *PD) Window(number uint32) *Window {
	if e, ok := pd.dev.keys.Get(number >> 8); ok && e.window != nil && e.window.pd() == pd {
		return e.window
	}
	return nil
}

// Type returns the window's type.
func (w *Window) Type() WindowType { return w.typ }

// Close frees the window. When Close returns, no request accesses memory
// through the window.
func (w *Window) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	w.pd().dev.keys.Remove(w.Number() >> 8)
	err := w.key.Close()
	w.unbind()
	w.pd().users.Leave("MW")
	return err
}

// unbind ends the use of the region.
func (w *Window) unbind() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner.Store(0)
	if w.region != nil {
		w.region.users.Leave("bound memory window")
		w.region = nil
	}
}

// bind executes a binding by a request of qp.
func (w *Window) bind(qp *QP, b *Binding) error {
	const op = "bind a memory window"
	if b.Number>>8 != w.Number()>>8 {
		return failure.New(op, syscall.EINVAL, "number %#x: the window's index is %#x, and only the tag may change", b.Number, w.Number()>>8)
	}
	if b.Length == 0 {
		if w.typ == WindowType2 {
			return failure.New(op, syscall.EINVAL, "window %#x: a window of type 2 is unbound by invalidation, not by a length of 0", w.Number())
		}
		w.invalidate()
		w.number.Store(b.Number)
		return nil
	}
	if bad := b.Access &^ (windowRights | rdma.LocalWrite | rdma.ZeroBased); bad != 0 {
		return failure.New(op, syscall.EINVAL, "access flags %#x: %#x are not known for a window", uint32(b.Access), uint32(bad))
	}
	rights, base := b.Access&windowRights, b.Addr
	if b.Access&rdma.ZeroBased != 0 {
		base = 0
	}
	e, err := w.pd().lookup(b.LKey)
	if err != nil {
		return err
	}
	if e.region == nil {
		return failure.New(op, syscall.EINVAL, "key %#x is no memory region", b.LKey)
	}
	need := ibv.MWBind
	if b.Access&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 {
		need |= rdma.LocalWrite
	}
	if err := e.region.Reach(b.Addr, b.Length, need); err != nil {
		return err
	}
	w.mu.Lock()
	bound, closed := w.region != nil, w.closed
	w.mu.Unlock()
	switch {
	case closed:
		return failure.New(op, syscall.EINVAL, "window %#x was closed", w.Number())
	case bound && w.typ == WindowType2:
		return failure.New(op, syscall.EINVAL, "window %#x is bound: a window of type 2 must be invalidated first", w.Number())
	case bound:
		w.invalidate()
	}
	if err := e.region.users.Enter(op, "bound memory window"); err != nil {
		return err
	}
	p, err := w.door.Prepare(&update{
		Access: &rights, Start: &base,
		Layout: mkey.List{{Memory: keyRef{w.pd(), b.LKey}, Addr: b.Addr, Length: b.Length}},
	})
	if err == nil {
		if w.typ == WindowType2 {
			w.owner.Store(qp.Num()) // before the first access finds the window bound
		}
		err = w.door.Apply(p)
	}
	if err != nil {
		w.owner.Store(0)
		e.region.users.Leave("bound memory window")
		return err
	}
	w.mu.Lock()
	w.region = e.region
	w.mu.Unlock()
	w.number.Store(b.Number)
	w.door.SetNumber(b.Number)
	return nil
}

// invalidate frees the window, and reports whether it was bound.
func (w *Window) invalidate() bool {
	was := w.door.Invalidate()
	w.unbind()
	return was
}

// invalidateRemote frees the window for a SEND with invalidate of the peer of qp.
func (w *Window) invalidateRemote(qp *QP) error {
	if w.typ != WindowType2 {
		return failure.New("invalidate a key", syscall.EACCES, "window %#x is of type 1, which cannot be invalidated", w.Number())
	}
	if err := w.owner.check(qp, w.Number()); err != nil {
		return err
	}
	if err := w.door.InvalidateRemote(); err != nil {
		return err
	}
	w.unbind()
	return nil
}
