//go:build linux

package uverbs

import (
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// TestWatchedRegion changes the memory of a region from page 2 up to the middle of page 4.
func TestWatchedRegion(t *testing.T) {
	const page = 4096
	const localWrite = 1
	reaches := func(w *watched, addr uint64) bool {
		return w.check([]adapter.Vec{{Addr: addr, Buf: make([]byte, 8)}}) == nil
	}
	for _, v := range []struct {
		name   string
		access uint32
		change procmem.Change
		means  bool // something for the region
		lost   []uint64
	}{
		{"before", localWrite, procmem.Change{Addr: 0, Length: 2 * page, Gone: true}, false, nil},
		{"after", localWrite, procmem.Change{Addr: 5 * page, Length: page, Gone: true}, false, nil},
		{"all", localWrite, procmem.Change{Addr: 0, Length: 9 * page, Gone: true}, true, []uint64{2, 3, 4}},
		{"first page", localWrite, procmem.Change{Addr: 2 * page, Length: 1, Gone: true}, true, []uint64{2}},
		{"last page", localWrite, procmem.Change{Addr: 4 * page, Length: page, Gone: true}, true, []uint64{4}},
		{"read-only", localWrite, procmem.Change{Addr: 3 * page, Length: page, Readable: true}, true, []uint64{3}},
		{"read-only, of a region that sends", 0, procmem.Change{Addr: 3 * page, Length: page, Readable: true}, false, nil},
		{"no rights", 0, procmem.Change{Addr: 3 * page, Length: page}, true, []uint64{3}},
		{"all rights", localWrite, procmem.Change{Addr: 3 * page, Length: page, Readable: true, Writable: true}, false, nil},
	} {
		w := &watched{name: "region 0x100"}
		w.register(2*page, 2*page+page/2, v.access)
		v.change.Call, v.change.Where = "call", "somewhere"
		if why := w.change(&v.change); (why != "") != v.means || v.means && (!strings.Contains(why, "region 0x100") || !strings.Contains(why, "somewhere")) {
			t.Errorf("%s: %q", v.name, why)
		}
		lost := map[uint64]bool{}
		for _, n := range v.lost {
			lost[n] = true
		}
		for n := uint64(2); n <= 4; n++ {
			if reaches(w, n*page+16) == lost[n] {
				t.Errorf("%s: page %d is reached: %t", v.name, n, !lost[n])
			}
		}
		// mprotect gives back what it has taken, and nothing else.
		w.change(&procmem.Change{Addr: 0, Length: 9 * page, Readable: true, Writable: true})
		for n := range lost {
			if reaches(w, n*page+16) == v.change.Gone {
				t.Errorf("%s: page %d is reached after mprotect: %t", v.name, n, !v.change.Gone)
			}
		}
		w.register(2*page, page, v.access)
		if !reaches(w, 2*page+16) {
			t.Errorf("%s: page 2 is not reached after another registration", v.name)
		}
	}
}

// TestWatchedRegionBound takes more ranges away than are kept.
func TestWatchedRegionBound(t *testing.T) {
	w := &watched{}
	w.register(0, 1<<40, 0)
	for n := range uint64(2 * mostLost) {
		w.change(&procmem.Change{Addr: n << 13, Length: 4096, Gone: true})
	}
	if len(w.lost) != mostLost {
		t.Errorf("%d ranges are kept, at most %d", len(w.lost), mostLost)
	}
}
