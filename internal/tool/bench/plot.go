package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Sizes of a Plot, in pixels.
const (
	plotWidth = 860
	plotLeft  = 330 // left end of the axis; the labels are before it
	plotRight = plotWidth - 70
	plotRow   = 18
	plotTop   = 44
	plotGroup = 12 // space between groups
)

// plotRatios are the ratios at which the axis has lines.
var plotRatios = []float64{0.25, 0.5, 1, 2, 4, 8, 16}

// Plot writes the ratios to peers as horizontal bars on a logarithmic axis, with a
// mark at the target. A bar to the right of the line at 1 is faster than its peer. The
// colours follow the reader's colour scheme, light or dark.
func (r *Report) Plot(w io.Writer, caption string) error {
	rows := r.compared()
	lo, hi := plotRange(rows)
	x := func(v float64) float64 {
		f := math.Log(v/lo) / math.Log(hi/lo)
		return plotLeft + f*float64(plotRight-plotLeft)
	}

	height := plotTop + 14
	for i, row := range rows {
		if i > 0 && rows[i-1].Group != row.Group {
			height += plotGroup
		}
		height += plotRow
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">
<style>
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .one { stroke: #59636e; stroke-width: 1.5 }
  .bar { fill: #2f81b7 }
  .short { fill: #b58a2a }
  .target { stroke: #cf222e; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .one { stroke: #9198a1 }
    .bar { fill: #4a9fd8 }
    .short { fill: #d0a94a }
    .target { stroke: #ff7b72 }
  }
</style>
`, plotWidth, height, escape(caption))
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"16\">%s</text>\n", 8, escape(caption))
	for _, v := range plotRatios {
		if v < lo || v > hi {
			continue
		}
		class := "grid"
		if v == 1 {
			class = "one"
		}
		fmt.Fprintf(&b, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1[2]f\" y1=\"%d\" y2=\"%d\"/>\n", class, x(v), plotTop-6, height-10)
		fmt.Fprintf(&b, "<text class=\"small\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%g×</text>\n", x(v), plotTop-12, v)
	}
	y := plotTop
	for i, row := range rows {
		if i > 0 && rows[i-1].Group != row.Group {
			y += plotGroup
		}
		b.WriteString(plotBar(&row, y, x))
		y += plotRow
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// compared returns the results that have a peer.
func (r *Report) compared() []Result {
	var rows []Result
	for _, row := range r.Results {
		if row.Peer != nil && row.Ratio > 0 && !row.Unit.Falling() {
			rows = append(rows, row)
		}
	}
	return rows
}

// plotRange returns the ratios at the ends of the axis. They are chosen from plotRatios so
// that all bars are between them, as far as plotRatios goes.
func plotRange(rows []Result) (lo, hi float64) {
	lo, hi = 0.5, 2
	for _, row := range rows {
		for lo > row.Ratio && lo > plotRatios[0] {
			lo /= 2
		}
		for hi < max(row.Ratio, row.Target) && hi < plotRatios[len(plotRatios)-1] {
			hi *= 2
		}
	}
	return lo, hi
}

func plotBar(row *Result, y int, x func(float64) float64) string {
	label := title(row)
	if row.Size != 0 {
		label += " " + SizeString(row.Size)
	}
	class := "bar"
	if row.HasTarget() && !row.Reached() {
		class = "short"
	}
	from, to := x(1), x(row.Ratio)
	s := fmt.Sprintf("<text text-anchor=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", plotLeft-8, y+plotRow-6, escape(label))
	s += fmt.Sprintf("<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"1.5\"/>\n",
		class, min(from, to), y+3, math.Abs(to-from), plotRow-6)
	end := max(from, to)
	if row.Target != 0 {
		at := x(row.Target)
		s += fmt.Sprintf("<line class=\"target\" x1=\"%.1f\" x2=\"%.1[1]f\" y1=\"%d\" y2=\"%d\"/>\n", at, y+1, y+plotRow-1)
		end = max(end, at)
	}
	return s + fmt.Sprintf("<text class=\"small\" x=\"%.1f\" y=\"%d\">%s×</text>\n", end+6, y+plotRow-6, figure(row.Ratio))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
