package engine

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// TestKeyTable adds, finds and removes entries, and compares the table with a map. Readers on
// other goroutines find an entry that stays, whatever changes beside it.
func TestKeyTable(t *testing.T) {
	var table keyTable
	known := map[uint32]*MKey{}
	var indexes []uint32
	add := func() uint32 {
		k := new(MKey)
		var number uint32
		if err := table.add(keyEntry{mkey: k}, 0, func(n uint32) error { number = n; return nil }); err != nil {
			t.Fatal(err)
		}
		known[number>>8] = k
		return number >> 8
	}
	stays := add()
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if e, ok := table.find(stays); !ok || e.index != stays {
					t.Error("the entry that stays is lost")
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 20000 {
		// The table grows at first, and shrinks later.
		if len(indexes) == 0 || rng.IntN(3) < 1+(round/10000^1) {
			indexes = append(indexes, add())
			continue
		}
		i := rng.IntN(len(indexes))
		table.remove(indexes[i] << 8)
		delete(known, indexes[i])
		indexes[i] = indexes[len(indexes)-1]
		indexes = indexes[:len(indexes)-1]
	}
	close(done)
	readers.Wait()
	for index, k := range known {
		if e, ok := table.find(index); !ok || e.mkey != k {
			t.Fatalf("index %#x: %+v, %t", index, e, ok)
		}
	}
	for range 1000 {
		index := rng.Uint32() >> 8
		if _, ok := table.find(index); ok != (known[index] != nil) {
			t.Fatalf("index %#x: found %t", index, ok)
		}
	}
	if table.count != len(known) {
		t.Errorf("%d entries are counted, there are %d", table.count, len(known))
	}
}
