// Package fatal ends tests that cannot go on.
package fatal

import "testing"

// If ends the test with err as the reason, unless err is nil. It must be called from the test's goroutine.
func If(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
