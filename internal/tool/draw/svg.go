// Package draw makes pictures of what a trace or a recording of packets shows: a memory key with
// its domains, the timeline of a connection, and the way of one request through the keys of both
// sides. The pictures are SVG, light or dark as the reader prefers.
package draw

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"
)

// The colours of the pictures.
const (
	ink    = "#1b1f24"
	soft   = "#57606a"
	line   = "#8c959f"
	faint  = "#d0d7de"
	red    = "#cf222e"
	blue   = "#2f6fd0"
	green  = "#3a8a2f"
	orange = "#b7791f"
	grey   = "#6e7781"
	violet = "#7a4dcf"
)

// pair is a fill colour, and the colour of the outline and text that go with it.
type pair struct{ fill, stroke string }

// palette has the colours that distinguish the entries of a layout. Neighbours differ most.
var palette = [...]pair{
	{"#cfe3ff", blue}, {"#d8f0d2", green}, {"#ffe9c7", orange}, {"#e9dcff", violet}, {"#d2f1f1", "#1c7f86"}, {"#ffd9ec", "#b83280"},
	{"#8fb8f5", "#1b4b99"}, {"#9ed392", "#24631c"}, {"#f5c06a", "#80500b"}, {"#bfa2f5", "#512b9c"}, {"#86d3d3", "#0f5559"}, {"#f29cc8", "#8a1d5c"},
}

// dark has the colours of the dark scheme, for readers who prefer it, each after the one that it replaces.
var dark = [...][2]string{
	{"#ffffff", "#0d1117"}, {ink, "#e6edf3"}, {soft, "#9aa4ae"}, {line, "#6e7781"}, {faint, "#30363d"}, {red, "#ff7b72"}, {blue, "#79b0ff"}, {green, "#6fd060"}, {orange, "#e3b05a"},
	{violet, "#b89bff"}, {"#1c7f86", "#6fd3da"}, {"#b83280", "#ff8ac8"}, {"#1b4b99", "#a9ccff"}, {"#24631c", "#a5e69a"}, {"#80500b", "#f5cd86"}, {"#512b9c", "#d3c1ff"}, {"#0f5559", "#9fe6ea"},
	{"#8a1d5c", "#ffb3da"}, {"#cfe3ff", "#1f3a63"}, {"#d8f0d2", "#1f4419"}, {"#ffe9c7", "#4d3409"}, {"#e9dcff", "#37275c"}, {"#d2f1f1", "#12434a"}, {"#ffd9ec", "#571d40"},
	{"#8fb8f5", "#2c528c"}, {"#9ed392", "#336427"}, {"#f5c06a", "#704c10"}, {"#bfa2f5", "#513a85"}, {"#86d3d3", "#1d5f66"}, {"#f29cc8", "#7a2c5b"},
	{"#fff5f5", "#2d1618"}, {"#ffd7d5", "#5c1f1d"}, {"#f3f5f8", "#1c2128"}, {"#eef1f5", "#262c34"}, {"#ece6fb", "#2f2647"}, {"#b9a3ea", "#5a4689"},
}

// canvas collects the elements of a picture.
type canvas struct {
	b             strings.Builder
	width, height float64
}

const (
	sans = `font-family="DejaVu Sans, Helvetica, Arial, sans-serif"`
	mono = `font-family="DejaVu Sans Mono, monospace"`
)

// style is how a text looks. The zero value is plain text of size 13 that begins at x.
type style struct {
	size   float64 // 0: 13
	fill   string  // "": ink
	anchor string  // "": start; middle, end
	bold   bool
	mono   bool
	halo   bool // stands on a white edge, which keeps it readable over lines
}

func (c *canvas) text(x, y float64, s style, format string, args ...any) {
	family, weight, anchor := sans, "", ""
	if s.mono {
		family = mono
	}
	if s.bold {
		weight = ` font-weight="bold"`
	}
	if s.anchor != "" {
		anchor = ` text-anchor="` + s.anchor + `"`
	}
	if s.halo {
		anchor += ` stroke="#ffffff" stroke-width="4" paint-order="stroke"`
	}
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" %s font-size="%g"%s%s fill="%s">%s</text>`+"\n", x, y, family, cmp.Or(s.size, 13), weight, anchor, cmp.Or(s.fill, ink), escape(fmt.Sprintf(format, args...)))
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}

func (c *canvas) rect(x, y, w, h float64, p pair, attrs string) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="%s"%s/>`+"\n", x, y, w, h, p.fill, p.stroke, attrs)
}

// hatch marks a rectangle as ciphertext.
func (c *canvas) hatch(x, y, w, h float64) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="url(#ciphertext)" class="ciphertext"/>`+"\n", x, y, w, h)
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string, width float64, attrs string) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s/>`+"\n", x1, y1, x2, y2, colour, width, attrs)
}

// between draws the surface from the range [a1, a2) at y1 to the range [b1, b2) at y2.
func (c *canvas) between(a1, a2, y1, b1, b2, y2 float64, fill string, opacity float64) {
	fmt.Fprintf(&c.b, `<path d="M%.1f %.1f L%.1f %.1f L%.1f %.1f L%.1f %.1f Z" fill="%s" opacity="%g"/>`+"\n", a1, y1, b1, y2, b2, y2, a2, y1, fill, opacity)
}

// arrow draws a line with a head.
func (c *canvas) arrow(x1, y1, x2, y2 float64, colour string, width float64) {
	c.line(x1, y1, x2, y2, colour, width, fmt.Sprintf(` marker-end="url(#arrow-%s)"`, strings.TrimPrefix(colour, "#")))
}

// svg returns the picture.
func (c *canvas) svg(title string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n", c.width, c.height, c.width, c.height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>@media (prefers-color-scheme: dark) {", escape(title))
	for _, d := range dark {
		fmt.Fprintf(&b, ` [fill="%s"]{fill:%s} [stroke="%s"]{stroke:%s}`, d[0], d[1], d[0], d[1])
	}
	b.WriteString(" }</style>\n<defs>\n")
	for _, colour := range []string{blue, green, orange, red, grey, violet} {
		fmt.Fprintf(&b, `<marker id="arrow-%s" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" refX="8" refY="4.5" orient="auto"><path d="M0 0 L9 4.5 L0 9 Z" fill="%s"/></marker>`+"\n",
			strings.TrimPrefix(colour, "#"), colour)
	}
	fmt.Fprintf(&b, `<pattern id="ciphertext" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="%s" stroke-width="2" opacity="0.45"/></pattern>`+"\n", violet)
	fmt.Fprintf(&b, `</defs>`+"\n"+`<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", c.width, c.height)
	b.WriteString(c.b.String())
	b.WriteString("</svg>\n")
	return b.Bytes()
}
