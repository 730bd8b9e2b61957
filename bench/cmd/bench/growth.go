package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/tool/bench"
)

// A series shows how cost grows with one number: it is measured at each of several sizes.
type series struct {
	name    string
	columns []string // the first one heads the labels of the rows
	sizes   []int
	label   func(n int) string    // nil: the number
	measure func(n int) []float64 // one value for each further column; NaN: not measured. An error ends it by check
}

// growth measures the series and prints each as a table.
func growth(ctx context.Context, o *options, filter *regexp.Regexp) error {
	fmt.Printf("%s\n", bench.ThisMachine())
	r := &runs{}
	defer r.remove()
	all := append([]series{queuePairSeries(), regionSeries(), keySeries()}, connectionSeries()...)
	all = append(all, programSeries(r), programQPSeries(r), threadSeries(r))
	if o.files {
		all = append(all, fileSeries(r)...)
	}
	var failed []error
	for _, s := range all {
		if !filter.MatchString(s.name) {
			continue
		}
		fmt.Printf("\n%s\n%s\n", s.name, strings.Join(s.columns, " | "))
		for i, n := range s.sizes {
			if o.quick && i == 2 || ctx.Err() != nil {
				break
			}
			var values []float64
			if err := attempt(func() { values = s.measure(n) }); err != nil {
				failed = append(failed, fmt.Errorf("%s, %d: %w", s.name, n, err))
				break
			}
			cells := []string{count(n)}
			if s.label != nil {
				cells[0] = s.label(n)
			}
			for _, v := range values {
				cells = append(cells, digits(v))
			}
			fmt.Println(strings.Join(cells, " | "))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// digits returns a value with three significant digits, or all before the decimal point, and nothing for NaN.
func digits(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v >= 100:
		return count(int(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// count returns a number with separators of thousands.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
