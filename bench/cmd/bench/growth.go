package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
)

// A series shows how cost grows with one number: it is measured at each of several sizes.
type series struct {
	name    string
	columns []string // the first one heads the labels of the rows
	sizes   []int
	label   func(n int) string             // nil: the number
	measure func(n int) ([]float64, error) // one value for each further column; NaN: not measured
}

// growthRow is a measured size of a series.
type growthRow struct {
	Label  string     `json:"label"`
	Values []*float64 `json:"values"` // nil: not measured
}

// growthTable is a measured series.
type growthTable struct {
	Name    string      `json:"name"`
	Columns []string    `json:"columns"`
	Rows    []growthRow `json:"rows"`
}

// growthReport holds the series of a processor. A series that a run does not measure stays.
type growthReport struct {
	Machine bench.Machine `json:"machine"`
	Date    string        `json:"date"`
	Note    string        `json:"note,omitempty"`
	Tables  []growthTable `json:"tables"`

	Name string `json:"-"` // name of its file, without extension
}

// growth measures the series, prints them, and stores them with --docs.
func growth(ctx context.Context, o *options) error {
	filter, err := regexp.Compile("(?i)" + o.filter)
	if err != nil {
		return err
	}
	report := &growthReport{Machine: bench.ThisMachine()}
	report.Name = fileName(&report.Machine)
	if o.docs != "" {
		if err := report.read(o.docs); err != nil {
			return err
		}
	}
	report.Machine, report.Date = bench.ThisMachine(), time.Now().UTC().Format(time.DateOnly)
	if o.note != "" || o.filter == "" {
		report.Note = o.note
	}
	fmt.Printf("%s\n", report.Machine)
	r := &runs{}
	defer r.remove()
	f := &sparse{r}
	all := append([]series{queuePairSeries(), regionSeries(), keySeries()}, connectionSeries()...)
	all = append(all, programSeries(r), programQPSeries(r))
	if o.files {
		all = append(all, f.series()...)
	}
	var failed []error
	for _, s := range all {
		if !filter.MatchString(s.name) {
			continue
		}
		table := growthTable{Name: s.name, Columns: s.columns}
		fmt.Printf("\n%s\n%s\n", s.name, strings.Join(s.columns, " | "))
		for _, n := range s.sizes {
			if o.quick && len(table.Rows) == 2 || ctx.Err() != nil {
				break
			}
			values, err := s.measure(n)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, %d: %w", s.name, n, err))
				break
			}
			row := growthRow{Label: count(n)}
			if s.label != nil {
				row.Label = s.label(n)
			}
			for _, v := range values {
				p := &v
				if math.IsNaN(v) {
					p = nil
				}
				row.Values = append(row.Values, p)
			}
			fmt.Println(row.line())
			table.Rows = append(table.Rows, row)
		}
		report.put(table)
	}
	if err := errors.Join(append(failed, ctx.Err())...); err != nil || o.docs == "" {
		return err
	}
	return report.write(o.docs)
}

// put adds a table, or replaces the one of the same name.
func (r *growthReport) put(t growthTable) {
	for i := range r.Tables {
		if r.Tables[i].Name == t.Name {
			r.Tables[i] = t
			return
		}
	}
	r.Tables = append(r.Tables, t)
}

// line returns a row as a line of a table.
func (r growthRow) line() string {
	cells := []string{r.Label}
	for _, v := range r.Values {
		if v == nil {
			cells = append(cells, "")
		} else {
			cells = append(cells, digits(*v))
		}
	}
	return strings.Join(cells, " | ")
}

// digits returns a value with three significant digits, or all before the decimal point.
func digits(v float64) string {
	if v >= 100 {
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

// growthDir returns the directory of the stored reports.
func growthDir(docs string) string { return filepath.Join(docs, "benchmarks", "growth") }

// read reads the stored report of the processor, if there is one.
func (r *growthReport) read(docs string) error {
	text, err := os.ReadFile(filepath.Join(growthDir(docs), r.Name+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, r)
}

// write stores the report.
func (r *growthReport) write(docs string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(growthDir(docs), 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(growthDir(docs), r.Name+".json"), append(text, '\n'), 0o666)
}
