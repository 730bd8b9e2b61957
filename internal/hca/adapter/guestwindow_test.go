package adapter_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestGuestWindow binds a window of type 2 as libmlx5 does in a guest: mlx5_ib has made a memory key for it, and a
// UMR gives the key a range and the number of its QP. The peer of this QP reaches the range. Another QP of the domain
// and its peer neither read, write nor change it, nor free it, by any request.
func TestGuestWindow(t *testing.T) {
	const tag = 0x42
	want := bytes.Repeat([]byte{0x5c}, 64)
	type lab struct {
		a, b           *guest // b reaches the memory of a
		other, peer    *guestQP
		window         uint32
		memory, buffer uint64
	}
	setup := func(t *testing.T) *lab {
		a, b := guestPair(t)
		l := &lab{a: a, b: b, other: a.newQP(prm.QPServiceRC), peer: b.newQP(prm.QPServiceRC), memory: a.page(), buffer: b.mem.alloc(64)}
		l.other.join(l.peer)
		b.mem.put(l.buffer, want)
		key := a.newMKey(prm.AccessModeKLM, 4, nil)
		a.queue.post(bind(2, key, tag, a.queue.number, l.memory, 64, a.dma, prm.ContextRW|prm.ContextRR|prm.ContextAtomic).sized())
		a.queue.done(prm.CQERequester)
		l.window = key | tag
		return l
	}
	access := func(l *lab, op prm.Opcode) []byte {
		return newWQE(op, 0, 0, prm.FlagCQUpdate).raddr(l.memory, l.window).data(l.buffer, 64, l.b.dma).sized()
	}
	free := func(l *lab) []byte { return bind(2, l.window, tag, 0, 0, 0, 0, 0).sized() }

	l := setup(t)
	l.b.queue.post(access(l, prm.OpWrite))
	l.b.queue.done(prm.CQERequester)
	if got := l.a.mem.get(l.memory, 64); !bytes.Equal(got, want) {
		t.Errorf("the window has %x", got)
	}
	l.a.queue.post(free(l))
	l.a.queue.done(prm.CQERequester)
	l.b.queue.post(access(l, prm.OpRead))
	l.b.queue.fails("a READ through a window that is free", prm.SyndromeRemoteAccess)

	for _, test := range []struct {
		name string
		try  func(l *lab) *guestQP // posts the request and returns its QP
	}{
		{"READ", func(l *lab) *guestQP { l.peer.post(access(l, prm.OpRead)); return l.peer }},
		{"WRITE", func(l *lab) *guestQP { l.peer.post(access(l, prm.OpWrite)); return l.peer }},
		{"atomic", func(l *lab) *guestQP {
			w := newWQE(prm.OpFetchAdd, 0, 0, prm.FlagCQUpdate).raddr(l.memory, l.window)
			w.b = append(w.b, make([]byte, 16)...)
			l.peer.post(w.data(l.buffer, 8, l.b.dma).sized())
			return l.peer
		}},
		{"SEND with invalidate", func(l *lab) *guestQP {
			l.other.postRecv(prm.Data{Length: 64, LKey: l.a.dma, Addr: l.a.mem.alloc(64)})
			l.peer.post(newWQE(prm.OpSendInv, 0, l.window, prm.FlagCQUpdate).data(l.buffer, 64, l.b.dma).sized())
			return l.peer
		}},
		{"LOCAL_INV", func(l *lab) *guestQP { l.other.post(free(l)); return l.other }},
		{"a new binding", func(l *lab) *guestQP {
			w := bind(2, l.window, tag+1, l.other.number, l.memory, 64, l.a.dma, prm.ContextRW)
			w.b[16] &^= prm.UMRCheckFree
			l.other.post(w.sized())
			return l.other
		}},
		{"a binding to another QP", func(l *lab) *guestQP {
			l.a.queue.post(free(l))
			l.a.queue.done(prm.CQERequester)
			l.other.post(bind(2, l.window, tag, l.a.queue.number, l.memory, 64, l.a.dma, prm.ContextRW).sized())
			return l.other
		}},
	} {
		l := setup(t)
		test.try(l).done(prm.CQERequesterErr)
		if test.name == "a binding to another QP" {
			continue
		}
		if got := l.a.mem.get(l.memory, 64); !bytes.Equal(got, make([]byte, 64)) {
			t.Errorf("%s: the window has %x", test.name, got)
		}
		l.b.queue.post(access(l, prm.OpWrite)) // the window is as it was
		l.b.queue.done(prm.CQERequester)
	}
}
