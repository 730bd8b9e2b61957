package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Options say how long to measure. The zero value is good for a table.
type Options struct {
	Rounds int           // number of rounds, each of which yields a figure of every case; 0: 25
	Turn   time.Duration // approximate time of a case in a round; 0: 5 ms

	// SampleRounds and SampleTurn replace Rounds and Turn for rows whose cases have
	// Sample, because these take longer to start. 0: 5 rounds, 500 ms.
	SampleRounds int
	SampleTurn   time.Duration

	Filter *regexp.Regexp // selects rows by Row.Name; nil: all rows

	// Each, if not nil, is called with every result as soon as it is known.
	Each func(Result)
}

func (o *Options) defaults() {
	o.Rounds = cmp.Or(o.Rounds, 25)
	o.Turn = cmp.Or(o.Turn, 5*time.Millisecond)
	o.SampleRounds = cmp.Or(o.SampleRounds, 5)
	o.SampleTurn = cmp.Or(o.SampleTurn, 500*time.Millisecond)
}

// Run measures rows, one after the other, on the thread that calls it and without
// garbage collections in between. A row that cannot be measured, for example because its
// Check fails, has a Result with an Error, and Run continues with the next one. The error
// that Run returns is that of ctx.
func Run(ctx context.Context, rows []Row, o Options) ([]Result, error) {
	o.defaults()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var results []Result
	for i := range rows {
		r := &rows[i]
		if o.Filter != nil && !o.Filter.MatchString(r.Name()) {
			continue
		}
		runtime.GC()
		result, err := measure(ctx, r, &o)
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		if err != nil {
			result.Error = err.Error()
		}
		results = append(results, result)
		if o.Each != nil {
			o.Each(result)
		}
	}
	return results, nil
}

// measure measures one row.
func measure(ctx context.Context, r *Row, o *Options) (Result, error) {
	result := Result{
		Group: r.Group, Operation: r.Operation, Variant: r.Variant, Size: r.Size, Unit: r.Unit,
		Bound: r.Bound, Target: r.Target, LimitTarget: r.LimitTarget,
	}
	if r.Done != nil {
		defer r.Done()
	}
	if r.Check != nil {
		if err := r.Check(); err != nil {
			return result, fmt.Errorf("not measured: %w", err)
		}
	}
	cases := []*Case{&r.Ours}
	if r.Peer != nil {
		cases = append(cases, r.Peer)
	}
	if r.Limit != nil {
		cases = append(cases, r.Limit)
	}
	samples, err := rounds(ctx, cases, r.Unit, o)
	if err != nil {
		return result, err
	}

	ours := samples[0]
	result.Ours = summary(r.Ours.Name, ours)
	rest := samples[1:]
	if r.Peer != nil {
		s := summary(r.Peer.Name, rest[0])
		result.Peer = &s
		result.Ratio = median(ratios(ours, rest[0]))
		rest = rest[1:]
	}
	if r.Limit != nil {
		s := summary(r.Limit.Name, rest[0])
		result.Limit = &s
		result.Fraction = median(ratios(ours, rest[0]))
	}
	return result, nil
}

// slice is the time for which a case runs before the next case has its turn. Instructions
// that draw more power lower the processor's clock, which rises again within a millisecond.
// Slices are much shorter than that, so all cases run at the same clock.
const slice = 20 * time.Microsecond

// rounds gives every case its time in each round and returns the figures of each.
func rounds(ctx context.Context, cases []*Case, u Unit, o *Options) ([][]float64, error) {
	count, round := o.Rounds, func() ([]float64, error) { return sample(ctx, cases, o.SampleTurn) }
	if cases[0].Run != nil {
		times := make([]int, len(cases))
		for i, c := range cases {
			times[i] = calibrate(c, min(slice, o.Turn))
		}
		round = func() ([]float64, error) { return alternate(ctx, cases, times, u, o.Turn) }
	} else {
		count = o.SampleRounds
	}
	samples := make([][]float64, len(cases))
	for range count {
		figures, err := round()
		if err != nil {
			return nil, err
		}
		for i, f := range figures {
			if !(f > 0) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("%s: %v %s is no figure", cases[i].Name, f, u)
			}
			samples[i] = append(samples[i], f)
		}
	}
	return samples, nil
}

// sample calls the Sample of each case, one after the other, and returns their figures.
func sample(ctx context.Context, cases []*Case, turn time.Duration) (figures []float64, err error) {
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var figure float64
		// Sample runs in a goroutine of its own, because the calling goroutine is bound to
		// its thread by Run, and waking such a goroutine takes longer.
		done := make(chan struct{})
		go func() {
			defer close(done)
			figure, err = c.Sample(turn)
		}()
		if <-done; err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		figures = append(figures, figure)
	}
	return figures, nil
}

// alternate runs a slice of each case in turn until every case has had about the time turn.
// It returns the figure of each case's median slice, which interruptions and slow moments
// of the machine do not change.
func alternate(ctx context.Context, cases []*Case, times []int, u Unit, turn time.Duration) ([]float64, error) {
	took := make([][]float64, len(cases))
	for begin := time.Now(); len(took[0]) == 0 || time.Since(begin) < turn*time.Duration(len(cases)); {
		for i, c := range cases {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The first calls fill the caches after the previous case.
			c.Run(1 + times[i]/8)
			start := time.Now()
			c.Run(times[i])
			took[i] = append(took[i], float64(time.Since(start)))
		}
	}
	figures := make([]float64, len(cases))
	for i, c := range cases {
		figures[i] = c.rate(u, times[i], time.Duration(median(took[i])))
	}
	return figures, nil
}

// warmth is the time for which a case runs before it is timed, because its first calls
// find cold caches, unmapped pages and a processor at a low clock.
const warmth = time.Millisecond

// calibrate returns the number of iterations of c that take the time d, by the fastest of
// three measurements.
func calibrate(c *Case, d time.Duration) (times int) {
	c.Run(1)
	for begin := time.Now(); ; {
		c.Run(1)
		if time.Since(begin) >= warmth {
			break
		}
	}
	for range 3 {
		for n := 1; ; n *= 2 {
			start := time.Now()
			c.Run(n)
			took := time.Since(start)
			if took >= d/4 || n >= 1<<30 {
				times = max(times, 1, int(float64(n)*float64(d)/float64(max(took, 1))))
				break
			}
		}
	}
	return times
}

// worse reports whether a is a worse figure than b.
func worse(u Unit, a, b float64) bool {
	if u.Falling() {
		return a > b
	}
	return a < b
}

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile returns the q-quantile of v, for q from 0 to 1.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}

func summary(name string, v []float64) Figure {
	return Figure{Name: name, Median: median(v), Low: quantile(v, 0.25), High: quantile(v, 0.75)}
}
