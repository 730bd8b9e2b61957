package bench

import (
	"fmt"
	"strconv"
	"time"
)

// A Unit is the unit of a figure.
type Unit string

// The units of figures. For the last three less is better.
const (
	GBps   Unit = "GB/s"  // 10^9 bytes of data a second; fields and headers do not count
	Mops   Unit = "M/s"   // 10^6 operations a second
	Micros Unit = "µs"    // duration of an operation
	KiB    Unit = "KiB"   // memory in use
	Calls  Unit = "calls" // system calls of an operation
)

// Falling reports whether less is better.
func (u Unit) Falling() bool { return u == Micros || u == KiB || u == Calls }

// A Case is one implementation that is measured: ours, a peer's, or a limit. Each Case has
// either Run or Sample, and all cases of a Row have the same one of the two.
type Case struct {
	Name string // name of the implementation

	// Run does n iterations in the goroutine that calls it. An iteration is Work bytes if
	// the unit is GBps, and Work operations otherwise.
	Run  func(n int)
	Work float64

	// Sample measures for about d, or once if that takes longer, and returns the figure. It
	// serves cases that cannot be called in a loop, such as two processes. It may use any
	// number of goroutines, and measures elapsed time.
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
	Variant   string // another property of the row, such as the layout of the memory; may be empty
	Size      int    // bytes of a block, a data unit, a message or a file; 0: the row has no size
	Unit      Unit

	Ours  Case
	Peer  *Case // nil: none
	Limit *Case // nil: none

	// Target is the wanted ratio of our figure to the peer's, LimitTarget the wanted ratio
	// to the limit, and Bound the wanted figure. Each is a lower bound, or an upper bound if
	// less is better. 0 means no target.
	Target, LimitTarget, Bound float64

	// Check is called before anything is timed. It returns an error if our results differ
	// from the peer's. Done is called when the row is finished, also after an error.
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

// SizeString returns a size in bytes, or in KiB, MiB or GiB if it is a multiple of the unit
// and at least 16 KiB. The size 0 is the empty string.
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

// Rows returns the rows of Sig, Convert, XTS and MKey, which need no peer.
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
