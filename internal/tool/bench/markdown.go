package bench

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the results as tables in Markdown, one for each group. headings has the
// title of each group.
func (r *Report) Markdown(w io.Writer, headings map[string]string) error {
	var b strings.Builder
	group := ""
	for i := range r.Results {
		row := &r.Results[i]
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(&b, "\n## %s\n\n", strings.TrimSpace(headings[group]))
			b.WriteString("| operation | size | ours | peer | ratio | target | limit | of the limit | target | reached |\n")
			b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n")
		}
		b.WriteString(markdownRow(row))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownRow(r *Result) string {
	if r.Error != "" {
		return fmt.Sprintf("| %s | %s | %s |||||||no |\n", title(r), SizeString(r.Size), strings.ReplaceAll(r.Error, "|", "\\|"))
	}
	ours := figure(r.Ours.Median) + " " + string(r.Unit)
	if r.Bound != 0 {
		ours += " (" + bound(r, r.Bound) + ")"
	}
	var peer, ratio, limit, of string
	if r.Peer != nil {
		peer, ratio = figure(r.Peer.Median)+" ("+r.Peer.Name+")", figure(r.Ratio)
	}
	if r.Limit != nil {
		limit, of = figure(r.Limit.Median)+" ("+r.Limit.Name+")", figure(r.Fraction)
	}
	cells := []string{
		title(r), SizeString(r.Size), ours, peer, ratio, bound(r, r.Target), limit, of, bound(r, r.LimitTarget), Verdict(r),
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
