// Package fair limits the entries that unauthenticated peers can make a program
// keep.
//
// A [Table] holds entries of peers in the order of their arrival, up to a limit
// in all and a limit for each peer. An entry above a limit displaces an older
// one. At the limit for each peer, it displaces the oldest entry of the same
// peer. At the limit in all, it displaces the oldest entry of any peer or, with
// [Table.Level], of a peer that has most. A peer that floods displaces its own
// entries. Since the source addresses of datagrams can be forged, a flood may
// seem to come from many peers; then an entry stays until as many newer ones
// have arrived as the table holds, and an honest exchange that is faster than
// that completes. In a [Queue], peers take turns.
package fair

import (
	"container/list"
	"net/netip"
)

// Table holds entries by peer and age. It is not safe for concurrent use.
type Table[T any] struct {
	most, each int
	level      bool
	added      uint64    // entries so far
	all        list.List // of *Entry[T], the oldest first
	peers      map[netip.Addr]*list.List
}

// Entry is an entry of a table.
type Entry[T any] struct {
	Value T

	peer          netip.Addr
	order         uint64 // position in the order of additions
	inAll, inPeer *list.Element
}

// New returns a table for most entries, of which each peer has at most each.
func New[T any](most, each int) *Table[T] {
	return &Table[T]{most: max(most, 1), each: min(max(each, 1), max(most, 1)), peers: make(map[netip.Addr]*list.List)}
}

// Level makes a full table displace an entry of a peer that has most. This
// limits peers that flood from several addresses. If the addresses are forged,
// an honest peer with several entries loses all but one, so Level is for
// entries whose loss costs little.
func (t *Table[T]) Level() *Table[T] {
	t.level = true
	return t
}

// Len returns the number of entries.
func (t *Table[T]) Len() int { return t.all.Len() }

// Of returns the number of entries of a peer.
func (t *Table[T]) Of(peer netip.Addr) int {
	if l := t.peers[peer]; l != nil {
		return l.Len()
	}
	return 0
}

// Displaced returns the entry that the caller must remove before it adds one of the peer,
// nil if there is room.
func (t *Table[T]) Displaced(peer netip.Addr) *Entry[T] {
	switch {
	case t.Of(peer) >= t.each:
		return t.peers[peer].Front().Value.(*Entry[T])
	case t.Len() >= t.most && t.level && t.Len() > len(t.peers):
		return t.highest(peer)
	case t.Len() >= t.most:
		return t.Oldest()
	}
	return nil
}

// highest returns the oldest entry of a peer that has most: the peer adds if it
// is one of them, otherwise the one with the oldest entry.
func (t *Table[T]) highest(adds netip.Addr) *Entry[T] {
	var top *Entry[T]
	most := 0
	for p, l := range t.peers {
		e := l.Front().Value.(*Entry[T])
		n := 2 * l.Len()
		if p == adds {
			n++
		}
		if n > most || n == most && e.order < top.order {
			top, most = e, n
		}
	}
	return top
}

// Add adds an entry of a peer, even if there is no room.
func (t *Table[T]) Add(peer netip.Addr, v T) *Entry[T] {
	l := t.peers[peer]
	if l == nil {
		l = list.New()
		t.peers[peer] = l
	}
	t.added++
	e := &Entry[T]{Value: v, peer: peer, order: t.added}
	e.inAll, e.inPeer = t.all.PushBack(e), l.PushBack(e)
	return e
}

// Remove removes an entry. Removing it again, or nil, does nothing.
func (t *Table[T]) Remove(e *Entry[T]) {
	if e == nil || e.inAll == nil {
		return
	}
	t.all.Remove(e.inAll)
	l := t.peers[e.peer]
	l.Remove(e.inPeer)
	if l.Len() == 0 {
		delete(t.peers, e.peer)
	}
	e.inAll, e.inPeer = nil, nil
}

// Oldest returns the oldest entry, nil if there is none.
func (t *Table[T]) Oldest() *Entry[T] {
	if e := t.all.Front(); e != nil {
		return e.Value.(*Entry[T])
	}
	return nil
}
