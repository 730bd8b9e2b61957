package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A Table prints results as they come, in columns of fixed width.
type Table struct {
	W     io.Writer
	Peers bool // also print the columns for peers and targets

	group string
}

// Print prints one result, and the heading of its group if it is the first.
func (t *Table) Print(r Result) {
	if r.Group != t.group {
		if t.group != "" {
			fmt.Fprintln(t.W)
		}
		t.group = r.Group
		t.line(t.heading(r.Group), "")
	}
	if r.Error != "" {
		fmt.Fprintf(t.W, "%s %s: %s\n", title(&r), SizeString(r.Size), r.Error)
		return
	}
	cells := []string{title(&r), SizeString(r.Size), figure(r.Ours.Median), string(r.Unit)}
	var who []string
	var limit, of string
	if r.Limit != nil {
		limit, of = figure(r.Limit.Median), figure(r.Fraction)
		who = append(who, "limit: "+r.Limit.Name)
	}
	if !t.Peers {
		t.line(append(cells, figure(r.Ours.Low), figure(r.Ours.High), limit, of), strings.Join(who, ", "))
		return
	}
	var peer, ratio string
	if r.Peer != nil {
		peer, ratio = figure(r.Peer.Median), figure(r.Ratio)
		who = append([]string{"peer: " + r.Peer.Name}, who...)
	}
	target := bound(&r, r.Target)
	if r.Bound != 0 { // the target of our figure instead of the ratio's
		target = bound(&r, r.Bound)
	}
	t.line(append(cells, peer, ratio, target, limit, of, bound(&r, r.LimitTarget), Verdict(&r)), strings.Join(who, ", "))
}

func (t *Table) heading(group string) []string {
	if !t.Peers {
		return []string{group, "size", "median", "", "1st qu.", "3rd qu.", "limit", "of it"}
	}
	return []string{group, "size", "ours", "", "peer", "ratio", "target", "limit", "of it", "target", "reached"}
}

// line prints the cells of a line, the first and the unit aligned to the left, the others to
// the right, and rest after them.
func (t *Table) line(cells []string, rest string) {
	var b strings.Builder
	for i, c := range cells {
		width := 8
		switch i {
		case 10:
			width = 10
		case 0:
			b.WriteString(c)
			b.WriteString(strings.Repeat(" ", max(0, 44-utf8.RuneCountInString(c))))
			continue
		case 3: // the unit, after its figure
			b.WriteString(" " + c + strings.Repeat(" ", max(0, 4-utf8.RuneCountInString(c))))
			continue
		}
		b.WriteString(strings.Repeat(" ", max(1, width-utf8.RuneCountInString(c))) + c)
	}
	if rest != "" {
		b.WriteString("   " + rest)
	}
	fmt.Fprintln(t.W, strings.TrimRight(b.String(), " "))
}

// title returns the operation with its variant.
func title(r *Result) string {
	if r.Variant == "" {
		return r.Operation
	}
	return r.Operation + ", " + r.Variant
}

// figure writes a number with three significant digits.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// bound writes a target.
func bound(r *Result, v float64) string {
	switch {
	case v == 0:
		return ""
	case r.Unit.Falling():
		return "≤ " + figure(v)
	}
	return "≥ " + figure(v)
}

// Verdict returns "yes" if all targets were reached, "no: limit" if a target is beyond the
// machine's limit, "no" if another one was missed, and "" if there are no targets.
func Verdict(r *Result) string {
	switch {
	case !r.HasTarget():
		return ""
	case r.Reached():
		return "yes"
	case r.Beyond():
		return "no: limit"
	}
	return "no"
}
