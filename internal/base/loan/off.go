//go:build !poison

package loan

// Poisoned reports whether memory is overwritten at the end of its loan.
const Poisoned = false

// End overwrites memory whose loan has ended. Its owner may use it from now on.
func End([]byte) {}

// A Ledger collects loans that end together.
type Ledger struct{}

// Lend adds a loan.
func (l *Ledger) Lend([]byte) {}

// End ends all loans.
func (l *Ledger) End() {}
