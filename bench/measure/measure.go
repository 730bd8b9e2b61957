// Package measure times things beside each other: repetitions of all candidates take
// turns, so that whatever else the machine does falls on each of them alike, and the
// median is told.
package measure

import (
	"slices"
	"time"
)

// A Case is something to time. Run does it n times; it moves or reads Bytes bytes
// each time.
type Case struct {
	Name  string
	Bytes int
	Run   func(n int)
}

// A Result is what a case came to, in GB/s (10^9 bytes).
type Result struct {
	Name   string
	Median float64
	Best   float64
}

// Options say how long to measure. The zero value is good for a table.
type Options struct {
	Repetitions int           // turns of each case; 0 means 21
	Turn        time.Duration // length of one turn, about; 0 means 2 ms
}

// Interleaved times the cases in turns.
func Interleaved(cases []Case, o Options) []Result {
	if o.Repetitions == 0 {
		o.Repetitions = 21
	}
	if o.Turn == 0 {
		o.Turn = 2 * time.Millisecond
	}
	times := make([]int, len(cases))
	for i, c := range cases {
		times[i] = calibrate(c, o.Turn)
	}
	rates := make([][]float64, len(cases))
	for range o.Repetitions {
		for i, c := range cases {
			start := time.Now()
			c.Run(times[i])
			took := time.Since(start)
			rates[i] = append(rates[i], float64(c.Bytes)*float64(times[i])/float64(took.Nanoseconds()))
		}
	}
	results := make([]Result, len(cases))
	for i, c := range cases {
		slices.Sort(rates[i])
		results[i] = Result{c.Name, rates[i][len(rates[i])/2], rates[i][len(rates[i])-1]}
	}
	return results
}

// calibrate returns how many times c fits into a turn.
func calibrate(c Case, turn time.Duration) int {
	for n := 1; ; n *= 2 {
		start := time.Now()
		c.Run(n)
		if took := time.Since(start); took >= turn/4 || n >= 1<<24 {
			return max(1, int(float64(n)*float64(turn)/float64(max(took, 1))))
		}
	}
}
