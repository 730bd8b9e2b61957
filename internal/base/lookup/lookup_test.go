package lookup

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// TestTable adds, finds and removes values, and compares the table with a map. Readers on other
// goroutines find a value that stays, whatever changes beside it.
func TestTable(t *testing.T) {
	var table Table[*int]
	if _, ok := table.Get(1); ok || len(table.All()) != 0 {
		t.Error("a new table is not empty")
	}
	table.Remove(1)
	const stays = 1 << 20
	table.Add(stays, new(int))
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
				if _, ok := table.Get(stays); !ok {
					t.Error("the value that stays is lost")
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	live := map[uint32]*int{}
	for round := range 40000 {
		number := rng.Uint32() >> 18
		// The table grows at first, and shrinks later.
		if rng.IntN(3) == 2-round/20000 {
			table.Remove(number)
			delete(live, number)
			continue
		}
		v := new(int)
		if added := table.Add(number, v); added != (live[number] == nil) {
			t.Fatalf("Add(%d) = %t", number, added)
		} else if added {
			live[number] = v
		}
	}
	close(done)
	readers.Wait()
	for number := range uint32(1 << 14) {
		if v, ok := table.Get(number); v != live[number] || ok != (v != nil) {
			t.Fatalf("Get(%d)", number)
		}
	}
	if n := len(live) + 1; table.Len() != n || len(table.All()) != n {
		t.Errorf("%d values, %d listed, want %d", table.Len(), len(table.All()), n)
	}
}
