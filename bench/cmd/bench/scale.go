package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/verbs"
)

// scaleRows measures n connected queue pairs on a device: their memory, and their total
// rate compared with that of one.
func scaleRows(n int) []bench.Row {
	const size = 64 << 10
	var many, one *flow
	single := rate("one queue pair", bench.GBps, &one)
	return []bench.Row{
		{
			Group: "wire", Operation: "memory of an idle queue pair", Variant: fmt.Sprintf("%d of them", n), Unit: bench.KiB, Bound: 8,
			Ours: sampled("softmkey", func(time.Duration) float64 { return idleKiB(n) }),
		},
		{
			Group: "wire", Operation: "WRITE over all in turn", Variant: fmt.Sprintf("%d of them", n), Size: size, Unit: bench.GBps,
			Ours: rate("softmkey", bench.GBps, &many), Peer: &single, Target: 0.8,
			Check: func() error {
				return attempt(func() {
					many, one = loopback(n, size, verbs.QPAttr{}), loopback(1, size, verbs.QPAttr{})
					many.check()
				})
			},
			Done: func() { many.close(); one.close() },
		},
	}
}

// loopback returns a flow of n queue pairs over UDP on loopback.
func loopback(n, size int, attr verbs.QPAttr) *flow {
	return newFlow(must(udp.Listen(loopbackAny, nil)), must(udp.Listen(loopbackAny, nil)), n, size, attr)
}

// idleKiB returns the memory of a connected queue pair: the heap and stacks of n of them on
// each of two devices, less those of one on each.
func idleKiB(n int) float64 {
	used := func(n int) float64 {
		before := memory()
		f := loopback(n, 64, verbs.QPAttr{})
		defer f.close()
		return memory() - before
	}
	one, many := used(1), used(n)
	return (many - one) / float64(2*(n-1)) / 1024
}

// memory returns the bytes in use, after a garbage collection.
func memory() float64 {
	runtime.GC()
	runtime.GC() // the second collection frees objects with a cleanup
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
