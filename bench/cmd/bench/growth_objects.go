package main

import (
	"math"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// spell is the time for which an operation is measured at one size.
const spell = 400 * time.Millisecond

// micros returns a duration divided by n, in microseconds.
func micros(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n) }

// processTime returns the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for other arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// queuePairSeries measures connected queue pairs of two devices of this process, over UDP.
func queuePairSeries() series {
	return series{
		name: "queue pairs",
		columns: []string{"queue pairs on each of two devices", "KiB for each, idle", "KiB for each, after use", "µs to create and connect one",
			"µs for a WRITE of 64 bytes, 64 in flight, over all in turn", "µs to close a region of another PD", "processor time of all idle ones, %", "µs to close one"},
		sizes: []int{1, 10, 100, 1000, 10_000, 100_000},
		measure: func(n int) []float64 {
			base := memory()
			none := loopback(0, 64, verbs.QPAttr{})
			devices := memory() - base
			none.close()

			base = memory()
			start := processTime()
			f := loopback(n, 64, verbs.QPAttr{})
			defer f.close()
			created := processTime() - start
			idle := memory() - base - devices

			f.check()
			f.touchAll()
			writing, sent := processTime(), f.sent
			f.run(spell, 64)
			write := micros(processTime()-writing, f.sent-sent)
			used := memory() - base - devices
			f.touchAll()
			closing := f.there.closeRegions(1000)
			cpu := processTime()
			time.Sleep(spell)
			cpu = processTime() - cpu

			start = processTime()
			f.close()
			closed := processTime() - start
			each := float64(2 * n * 1024)
			if n < 100 {
				each = math.NaN() // the devices' own memory varies by more than the queue pairs'
			}
			return []float64{idle / each, used / each, micros(created, 2*n), write, closing, 100 * cpu.Seconds() / spell.Seconds(), micros(closed, 2*n)}
		},
	}
}

// touchAll sends a message over each queue pair.
func (f *flow) touchAll() {
	wcs := make([]rdma.WC, 256)
	posted, done := 0, 0
	for done < len(f.here.qps) {
		for ; posted < len(f.here.qps) && posted-done < len(wcs); posted++ {
			f.post(f.here.qps[posted], 1)
		}
		f.here.wait(wcs, &done)
	}
}

// closeRegions registers and closes n regions, one after the other, in a PD without queue
// pairs. It returns the microseconds to close one.
func (e *end) closeRegions(n int) float64 {
	pd := must(e.dev.NewPD())
	defer pd.Close()
	b := make([]byte, 4096)
	var total time.Duration
	for range n {
		mr := must(pd.Register(b, rdma.LocalWrite))
		start := processTime()
		check(mr.Close())
		total += processTime() - start
	}
	return micros(total, n)
}

// numbers is 1, 16, 256 and so on to 2^20.
var numbers = []int{1, 1 << 4, 1 << 8, 1 << 12, 1 << 16, 1 << 20}

// pair returns a flow of one queue pair between two devices of this process, without sockets.
func pair() *flow {
	a, b := inproc.Pair(nil)
	return newFlow(a, b, 1, 64<<10, verbs.QPAttr{})
}

// regionSeries measures regions, which the peer writes to.
func regionSeries() series {
	return series{
		name:    "regions",
		columns: []string{"regions of a device", "bytes for each", "µs to register one", "µs for a WRITE of 64 bytes to one at random", "µs to close one"},
		sizes:   numbers,
		measure: func(n int) []float64 {
			f := pair()
			defer f.close()
			mrs := make([]*verbs.MR, 0, n)
			defer func() {
				for _, mr := range mrs {
					mr.Close()
				}
			}()
			buf := make([]byte, 64<<10)
			base := memory()
			start := processTime()
			for i := range n {
				mrs = append(mrs, must(f.there.pd.Register(buf[i%16*4096:][:4096], rdma.LocalWrite|rdma.RemoteWrite)))
			}
			created := processTime() - start
			each := (memory() - base) / float64(n)
			write := f.random(64, func() (uint32, uint64) {
				mr := mrs[rand.IntN(n)]
				return mr.RKey(), mr.Addr()
			})
			rand.Shuffle(n, func(i, j int) { mrs[i], mrs[j] = mrs[j], mrs[i] })
			start = processTime()
			for _, mr := range mrs {
				check(mr.Close())
			}
			closed := processTime() - start
			mrs = nil
			return []float64{each, micros(created, n), write, micros(closed, n)}
		},
	}
}

// random sends messages of size bytes for a spell, 256 in flight, each to the address that
// to returns. It returns the microseconds of one.
func (f *flow) random(size int, to func() (rkey uint32, addr uint64)) float64 {
	wcs := make([]rdma.WC, 256)
	qp := f.here.qps[0]
	posted, done := 0, 0
	start, end := processTime(), time.Now().Add(spell)
	for more := true; more || done < posted; {
		more = time.Now().Before(end)
		c := qp.Start()
		for more && posted-done < 64 {
			rkey, addr := to()
			c.Signaled().Write(rkey, addr).SGE(f.here.mr.SGE(0, size))
			posted++
		}
		check(c.Complete())
		if done < posted {
			f.here.wait(wcs, &done)
		}
	}
	return micros(processTime()-start, done)
}

// keySeries measures memory keys with a T10-DIF field on the wire, which the peer writes to.
func keySeries() series {
	dif := &sig.Format{Type: sig.T10DIF, BlockSize: 512}
	const wireSize = 520
	return series{
		name: "memory keys",
		columns: []string{"memory keys of a device", "bytes for each, created", "bytes for each, configured", "µs to create one", "µs to configure one",
			"µs for a WRITE of one signed block through one at random", "µs to close one"},
		sizes: numbers,
		measure: func(n int) []float64 {
			f := pair()
			defer f.close()
			keys := make([]*verbs.MKey, 0, n)
			defer func() {
				for _, k := range keys {
					k.Close()
				}
			}()
			base := memory()
			start := processTime()
			for range n {
				keys = append(keys, must(f.there.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 4})))
			}
			created := processTime() - start
			bare := (memory() - base) / float64(n)
			start = processTime()
			f.configure(keys, dif)
			configured := processTime() - start
			full := (memory() - base) / float64(n)
			copy(f.here.mr.Bytes(), make([]byte, wireSize)) // a block of zeros with its field: all zeros
			write := f.random(wireSize, func() (uint32, uint64) { return keys[rand.IntN(n)].RKey(), 0 })
			rand.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			start = processTime()
			for _, k := range keys {
				check(k.Close())
			}
			closed := processTime() - start
			keys = nil
			return []float64{bare, full, micros(created, n), micros(configured, n), write, micros(closed, n)}
		},
	}
}

// configure gives each key one block of the peer's memory, with a field on the wire.
func (f *flow) configure(keys []*verbs.MKey, wire *sig.Format) {
	qp, wcs := f.there.qps[0], make([]rdma.WC, 1)
	for len(keys) > 0 {
		n := min(len(keys), 32)
		c := qp.Start()
		for i, k := range keys[:n] {
			if i == n-1 {
				c.Signaled()
			}
			c.Configure(k).Access(rdma.LocalWrite | rdma.RemoteWrite).List(f.there.mr.SGE(0, 512)).Signature(mkey.Signature{Wire: wire})
		}
		keys = keys[n:]
		check(c.Complete())
		f.there.wait(wcs, new(int))
	}
}
