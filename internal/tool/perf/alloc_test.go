//go:build !race

package perf

import "testing"

// The race detector makes sync.Pool drop items at random, so this file is not built with it.

// TestAllocations checks that neither side allocates per message. A whole measurement
// allocates about ten objects.
func TestAllocations(t *testing.T) {
	ctx, c := pair(t)
	for _, op := range []string{Write, Read} {
		for name, terms := range keys {
			cs := Case{Test: Bandwidth, Op: op, Key: name, Terms: terms, Size: 4096, Depth: 16, QPs: 1, Inline: 64}
			e, err := newEnd(c.dev, cs, true, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.connect(ctx, e); err != nil {
				t.Fatal(err)
			}
			const messages = 1024
			per := testing.AllocsPerRun(5, func() {
				var r Result
				if err := e.bandwidth(ctx, Limit{Messages: messages}, &r); err != nil {
					t.Error(err)
				}
			})
			if per/messages > 0.05 {
				t.Errorf("%s, %s: %.2f allocations for each message", op, name, per/messages)
			}
			if _, err := c.ask(ctx, request{Kind: kindStop}); err != nil {
				t.Fatal(err)
			}
			if err := e.close(); err != nil {
				t.Error(err)
			}
		}
	}
}
