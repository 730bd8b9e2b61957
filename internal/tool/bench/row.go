package bench

import (
	"fmt"
	"strconv"
	"time"
)

// A Unit is the unit of a figure.
type Unit string

// The units of figures. For the last two, less is better.
const (
	GBps   Unit = "GB/s" // 10^9 bytes of data a second; fields and headers do not count
	Mops   Unit = "M/s"  // 10^6 operations a second
	Micros Unit = "µs"   // of an operation
	KiB    Unit = "KiB"  // of memory
)

// Falling reports whether less is better.
func (u Unit) Falling() bool { return u == Micros || u == KiB }

// A Case is something to measure: one side of a Row. Either Run or Sample is set, the same
// in all cases of a Row.
type Case struct {
	Name string // who does it

	// Run does n iterations, each of which is Work bytes for a figure in GBps, or
	// Work operations, all in the goroutine that calls it.
	Run  func(n int)
	Work float64

	// Sample measures by itself for about d, or once if it takes longer, and returns
	// the figure. It is for cases that are no loop, such as two processes. It may use any number of
	// goroutines, and the time is the clock's.
	Sample func(d time.Duration) (float64, error)
}

// rate returns the figure of n iterations in d.
func (c *Case) rate(u Unit, n int, d time.Duration) float64 {
	perNano := c.Work * float64(n) / float64(max(d, 1))
	switch u {
	case GBps:
		return perNano
	case Mops:
		return perNano * 1e3
	default:
		return 1e-3 / perNano
	}
}

// A Row is a line of the table.
type Row struct {
	Group     string // the table's part: a package, "files" or "wire"
	Operation string
	Variant   string // a difference that is not the operation's: where memory lies, say
	Size      int    // bytes: of a block, a data unit, a message, a file; 0 if there is none
	Unit      Unit

	Ours  Case
	Peer  *Case  // nil: none
	Limit []Case // no implementation can beat the slowest of these in each round

	// Target is the ratio of ours to the peer's that is wanted, LimitTarget the
	// fraction of the limit. They are lower bounds; upper ones where less is better. 0
	// is no target.
	Target, LimitTarget float64

	// Bound is a target for our figure itself, as above.
	Bound float64

	// Check is called before anything is timed and says whether ours and the peer's
	// results agree. Done is called when the row is finished, whatever came of it.
	Check func() error
	Done  func()
}

// Name returns the name that filters match.
func (r *Row) Name() string {
	name := r.Group + "/" + r.Operation
	if r.Variant != "" {
		name += "/" + r.Variant
	}
	if r.Size != 0 {
		name += "/" + strconv.Itoa(r.Size)
	}
	return name
}

// SizeString returns a size in the unit in which it is a small whole number. Blocks
// and data units, up to some thousand bytes, are shown in bytes.
func SizeString(n int) string {
	switch {
	case n == 0:
		return ""
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<14 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return strconv.Itoa(n)
}

// Rows returns all rows that need no peer.
func Rows() []Row {
	var rows []Row
	for _, r := range Sig() {
		rows = append(rows, r.Row)
	}
	rows = append(rows, Convert()...)
	for _, r := range XTS() {
		rows = append(rows, r.Row)
	}
	return append(rows, MKey()...)
}
