package fair

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func peer(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// put adds an entry like a user of the table and returns what it displaced, -1 for nothing.
func put(t *Table[int], p, v int) (e *Entry[int], displaced int) {
	displaced = -1
	if old := t.Displaced(peer(p)); old != nil {
		displaced = old.Value
		t.Remove(old)
	}
	return t.Add(peer(p), v), displaced
}

// TestOnePeer floods from one peer: it displaces its own entries, and another peer's stays.
func TestOnePeer(t *testing.T) {
	table := New[int](8, 4)
	if _, d := put(table, 1, 1000); d != -1 {
		t.Fatalf("displaced %d", d)
	}
	for i := range 100 {
		want := i - 4
		if i < 4 {
			want = -1
		}
		if _, d := put(table, 2, i); d != want {
			t.Fatalf("entry %d displaced %d, want %d", i, d, want)
		}
	}
	if table.Len() != 5 || table.Of(peer(1)) != 1 || table.Of(peer(2)) != 4 || table.Oldest().Value != 1000 {
		t.Errorf("%d entries, %d and %d of the peers", table.Len(), table.Of(peer(1)), table.Of(peer(2)))
	}
}

// TestManyPeers floods from a new address each time: the oldest entry of all is
// displaced, and an entry stays until as many newer ones have come as the table
// holds.
func TestManyPeers(t *testing.T) {
	table := New[int](8, 4)
	for i := range 100 {
		want := i - 8
		if i < 8 {
			want = -1
		}
		if _, d := put(table, i, i); d != want {
			t.Fatalf("entry %d displaced %d, want %d", i, d, want)
		}
	}
}

// TestLargestSharesMakeRoom fills a table from three peers, each below its limit. Further entries
// must displace entries of these peers, and none of a fourth peer.
func TestLargestSharesMakeRoom(t *testing.T) {
	table := New[int](8, 4).Level()
	put(table, 0, 1000)
	put(table, 0, 1001)
	for i := range 99 {
		put(table, 1+i%3, i)
	}
	if table.Len() != 8 || table.Of(peer(0)) != 2 || table.Oldest().Value != 1000 {
		t.Errorf("%d entries, %d of the first peer", table.Len(), table.Of(peer(0)))
	}
}

// TestAgainstSlice compares random additions and removals with a slice.
func TestAgainstSlice(t *testing.T) {
	type pair struct{ p, v int }
	r := rand.New(rand.NewPCG(1, 1))
	const most, each = 12, 5
	table := New[int](most, each)
	var model []pair
	entries := make(map[int]*Entry[int])
	for v := range 20000 {
		if len(model) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(model))
			e := entries[model[i].v]
			table.Remove(e)
			table.Remove(e)
			model = slices.Delete(model, i, i+1)
			continue
		}
		p := r.IntN(6)
		of := 0
		for _, m := range model {
			if m.p == p {
				of++
			}
		}
		want := -1
		i := -1
		switch {
		case of >= each:
			i = slices.IndexFunc(model, func(m pair) bool { return m.p == p })
		case len(model) >= most:
			i = 0
		}
		if i >= 0 {
			want = model[i].v
			model = slices.Delete(model, i, i+1)
		}
		e, d := put(table, p, v)
		if d != want {
			t.Fatalf("entry %d of peer %d displaced %d, want %d", v, p, d, want)
		}
		entries[v] = e
		model = append(model, pair{p, v})
		if table.Len() != len(model) || table.Oldest().Value != model[0].v {
			t.Fatalf("%d entries, want %d", table.Len(), len(model))
		}
	}
	for table.Len() > 0 {
		table.Remove(table.Oldest())
	}
	if table.Oldest() != nil || len(table.peers) != 0 {
		t.Error("an empty table has entries")
	}
}
