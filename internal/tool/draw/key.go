package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// geometry holds the sizes of a key's domains and blocks.
type geometry struct {
	memory  uint64 // bytes of the memory domain
	blocks  uint64 // whole blocks
	data    uint64 // bytes of data in a block
	memStep uint64 // bytes of a block with its field, in the memory domain
	wire    uint64 // bytes of the wire domain
	step    uint64 // bytes of a block with its field, in the wire domain
}

// divided reports whether the key has blocks or data units.
func (k *Key) divided() bool { return k.Wire.signed() || k.Memory.signed() || k.Crypto != nil }

func (k *Key) geometry() (g geometry) {
	for _, p := range k.Pieces {
		g.memory += uint64(p.Length)
	}
	g.memory += k.More
	switch {
	case k.Wire.signed():
		g.data = k.Wire.BlockSize
	case k.Memory.signed():
		g.data = k.Memory.BlockSize
	case k.Crypto != nil && k.Crypto.DataUnitSize > 0 && k.Crypto.DataUnitSize < mostBlock:
		g.data = k.Crypto.DataUnitSize
	default: // one block
		g.data = max(g.memory, 1)
	}
	g.memStep, g.step = g.data, g.data
	if k.Memory.signed() {
		g.memStep = k.Memory.stride()
	}
	if k.Wire.signed() {
		g.step = k.Wire.stride()
	}
	if len(k.Pieces) == 0 {
		g.wire = k.Length
		g.blocks = g.wire / g.step
		return g
	}
	g.blocks = g.memory / g.memStep
	g.wire = g.blocks*g.step + g.memory%g.memStep
	return g
}

// mostBlocks returns the number of blocks that fit the picture.
func (k *Key) mostBlocks() uint64 {
	if k.Narrow {
		return 3
	}
	return 8
}

// window returns the range of blocks that the picture shows: those around the first bad
// block, or the first blocks of the key.
func (k *Key) window(g geometry) (from, to uint64) {
	most := k.mostBlocks()
	to = min(g.blocks, most)
	if len(k.Bad) == 0 || g.blocks <= most {
		return 0, to
	}
	bad := min(k.Bad[0].Block-min(k.First, k.Bad[0].Block), g.blocks-1)
	if bad >= most-min(most/2, 2) {
		from = min(bad-most/2, g.blocks-most)
	}
	return from, from + most
}

// mostShown is the number of pieces of memory that fit a picture. Further ones are not drawn.
const mostShown = 200

const (
	left      = 160.0
	boxHeight = 46.0
)

// right returns where the domains of a picture end.
func right(narrow bool) float64 {
	if narrow {
		return 450
	}
	return 1220
}

// canvasFor returns a canvas for domains.
func canvasFor(narrow bool) *canvas { return &canvas{width: right(narrow) + 30} }

// lines writes parts of a text, in one line or, if the picture is narrow, in several. It returns the height of those
// below the first.
func (c *canvas) lines(y float64, narrow bool, parts []string) float64 {
	if !narrow {
		parts = []string{strings.Join(parts, "; ")}
	}
	for i, part := range parts {
		c.text(30, y+16*float64(i), style{size: 12, fill: soft}, "%s", part)
	}
	return 16 * float64(len(parts)-1)
}

// strip is a domain in a picture: it maps the bytes that are shown to the range from left to
// right.
type strip struct {
	from, to uint64 // bytes that are shown
	right, y float64
}

func (s strip) x(at uint64) float64 {
	at = min(max(at, s.from), s.to)
	return left + (s.right-left)*float64(at-s.from)/float64(max(s.to-s.from, 1))
}

// SVG returns the picture of the key.
func (k *Key) SVG() []byte {
	k = k.expanded()
	c := canvasFor(k.Narrow)
	title := cmp.Or(k.Title, fmt.Sprintf("memory key %#x", k.Number))
	c.text(30, 36, style{size: 19, bold: true}, "%s", title)
	y := 104 + c.lines(60, k.Narrow, k.describe())
	if len(k.Pieces) > 0 {
		y = k.drawMemory(c, y)
		k.drawSteps(c, y-56, true)
		back := y + 62
		if k.Crypto != nil { // below its two lines
			back += 24
		}
		k.drawSteps(c, back, false)
	}
	c.height = k.drawBad(c, y+boxHeight, k.drawWire(c, y))
	return c.svg(title)
}

func (k *Key) describe() (parts []string) {
	g := k.geometry()
	if n := len(k.Pieces); n > 0 {
		parts = append(parts, plural(n, "piece", "pieces")+fmt.Sprintf(", %d bytes in memory, %d bytes on the wire", g.memory, g.wire))
	} else {
		parts = append(parts, fmt.Sprintf("%d bytes", g.wire))
	}
	if from, to := k.window(g); to-from < g.blocks {
		parts = append(parts, fmt.Sprintf("blocks %d to %d of %d, counted from 0", k.First+from, k.First+to-1, g.blocks))
	}
	if len(k.Access) > 0 {
		parts = append(parts, "access "+strings.Join(k.Access, ", "))
	}
	if k.Process != 0 {
		parts = append(parts, fmt.Sprintf("process %d, %s", k.Process, k.Time.Format("15:04:05.000000")))
	}
	return parts
}

// ciphered reports which parts of a domain are ciphertext: the data of its blocks, and their fields.
func (k *Key) ciphered(domain string) (data, fields bool) {
	if k.Crypto == nil {
		return false, false
	}
	// On the way to the wire, the crypto comes before the signature or after it. Fields that the
	// signature makes or checks on the side of the plaintext are encrypted with their blocks.
	if k.Crypto.TX == "encrypt" {
		return domain == "wire", domain == "wire" && k.Crypto.Order == "after"
	}
	return domain == "memory", domain == "memory" && k.Crypto.Order == "before"
}

// steps returns what the key does on the way from memory to the wire, or back, in this order.
func (k *Key) steps(toWire bool) (steps []string) {
	in, out := k.Memory.signed(), k.Wire.signed()
	if !toWire {
		in, out = out, in
	}
	switch {
	case in && out:
		steps = append(steps, "check, sign anew")
	case in:
		steps = append(steps, "check, strip")
	case out:
		steps = append(steps, "sign")
	}
	if k.Crypto == nil {
		return steps
	}
	crypt := "decrypt"
	if (k.Crypto.TX == "encrypt") == toWire {
		crypt = "encrypt"
	}
	if (k.Crypto.Order == "before") == toWire {
		return append([]string{crypt}, steps...)
	}
	return append(steps, crypt)
}

// drawSteps names the steps between the domains, from y down.
func (k *Key) drawSteps(c *canvas, y float64, toWire bool) {
	steps, to := k.steps(toWire), "to memory:"
	if toWire {
		to = "to the wire:"
	}
	if len(steps) == 0 {
		return
	}
	c.text(30, y, style{size: 11, fill: soft}, "%s", to)
	for i, step := range steps {
		c.text(30, y+14*float64(i+1), style{size: 11, bold: true}, "%d. %s", i+1, step)
	}
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// drawMemory draws the buffers and the memory domain from y down, and returns the y at which
// the wire domain begins.
func (k *Key) drawMemory(c *canvas, y float64) float64 {
	g := k.geometry()
	from, to := k.window(g)
	right := right(k.Narrow)
	mem := strip{from: from * g.memStep, to: to * g.memStep, right: right, y: y + 112}
	if to == g.blocks {
		mem.to = g.memory
	}
	// Pieces that the window shows, with the place of each in the memory domain.
	type shown struct {
		Entry
		number int // in the layout
		at     uint64
		place  int // position among the pieces in the order of their addresses
	}
	var pieces []shown
	at := uint64(0)
	for i, p := range k.Pieces {
		if n := uint64(p.Length); at+n > mem.from && at < mem.to && len(pieces) < mostShown {
			pieces = append(pieces, shown{p, i, at, 0})
		}
		at += uint64(p.Length)
	}
	order := make([]int, len(pieces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pieces[a].Addr, pieces[b].Addr) })
	for place, i := range order {
		pieces[i].place = place
	}
	c.text(30, y+8, style{bold: true}, "buffers")
	c.text(30, y+26, style{size: 11, fill: soft}, "by address")
	c.line(left, y+18, right, y+18, faint, 2, "")
	c.text(30, mem.y+20, style{bold: true}, "memory domain")
	c.text(30, mem.y+38, style{size: 11, fill: soft}, "%s", k.Memory.describe())
	slot := (right - left) / float64(max(len(pieces), 1))
	width := min(100, slot*0.9)
	free := left // the labels of the memory domain end here
	for i := range pieces {
		p := &pieces[i]
		colour := palette[p.number%len(palette)]
		x := left + slot*float64(p.place) + (slot-width)*float64(p.place)/float64(max(len(pieces)-1, 1))
		a, b := mem.x(p.at), mem.x(p.at+uint64(p.Length))
		c.between(x, x+width, y+36, a, b, mem.y, colour.fill, 0.35)
		c.rect(x, y, width, 36, colour, ` rx="4"`)
		// Pieces have numbers where there is room: those of a layout with many have colours that repeat.
		switch number := p.number; {
		case uint64(len(pieces)) <= k.mostBlocks():
			c.text(x+width/2, y+16, style{size: 12, bold: true, fill: colour.stroke, anchor: "middle"}, "%d", number)
			c.text(x+width/2, y+30, style{size: 11, fill: colour.stroke, anchor: "middle"}, "%d bytes", p.Length)
			c.text(x, y-6, style{size: 10.5, fill: soft, mono: true}, "%#x", uint64(p.Addr))
		case width >= textWidth(number):
			c.text(x+width/2, y+22, style{size: 11, fill: colour.stroke, anchor: "middle"}, "%d", number)
		}
		c.rect(a, mem.y, b-a, boxHeight, colour, "")
		if text := fmt.Sprintf("%d: +%d", p.number, p.at); a >= free && uint64(len(pieces)) <= 4*k.mostBlocks() {
			length := 6.5 * float64(len(text)+1)
			c.text(min(a, right+30-length), mem.y-5, style{size: 10.5, fill: colour.stroke, mono: true}, "%s", text)
			free = a + length
		}
	}
	data, _ := k.ciphered("memory")
	if data {
		c.hatch(left, mem.y, mem.x(to*g.memStep)-left, boxHeight)
	}
	for n := from; n < to; n++ {
		a, b := mem.x(n*g.memStep), mem.x((n+1)*g.memStep)
		field := k.Memory.fieldWidth(b - a)
		if k.Memory.signed() {
			k.field(c, b-field, mem.y, field, "memory", k.isBad("memory", n))
		}
		if k.divided() {
			c.text((a+b-field)/2, mem.y+28, style{anchor: "middle", halo: data}, "%d", k.First+n)
		}
		if n > from {
			c.line(a, mem.y, a, mem.y+boxHeight, soft, 1, ` stroke-dasharray="2 3"`)
		}
	}
	return mem.y + 114
}

// fieldWidth returns the width of a field in a block of the given width, 0 if there are no fields. It is
// larger than the field's share of the bytes, which would be too small to see.
func (d *Domain) fieldWidth(block float64) float64 {
	if !d.signed() {
		return 0
	}
	return min(24, block*0.3)
}

func (k *Key) field(c *canvas, x, y, w float64, domain string, bad bool) {
	p := pair{grey, line}
	_, hidden := k.ciphered(domain)
	switch {
	case bad:
		p = pair{red, red}
	case hidden:
		p = pair{"#b9a3ea", line}
	}
	c.rect(x, y, w, boxHeight, p, "")
	if hidden {
		c.hatch(x, y, w, boxHeight)
	}
}

// textWidth returns about the width of a number in small type.
func textWidth(n int) float64 { return 4 + 7*float64(len(fmt.Sprint(n))) }

func (k *Key) isBad(domain string, block uint64) bool {
	return slices.ContainsFunc(k.Bad, func(b Bad) bool { return b.Domain == domain && b.Block == k.First+block })
}

// tint returns the colour of the surface between the two domains of a block.
func (k *Key) tint(block uint64) string {
	if k.isBad("wire", block) || k.isBad("memory", block) {
		return "#ffd7d5"
	}
	return "#eef1f5"
}

// drawWire draws the wire domain from y down, and returns the y below it.
func (k *Key) drawWire(c *canvas, y float64) float64 {
	g := k.geometry()
	from, to := k.window(g)
	name := "wire domain"
	if len(k.Pieces) == 0 {
		name = "blocks"
	}
	c.text(30, y+20, style{bold: true}, "%s", name)
	c.text(30, y+38, style{size: 11, fill: soft}, "%s", k.Wire.describe())
	if k.Crypto != nil {
		c.text(30, y+54, style{size: 11, fill: violet}, "AES-XTS, units of %d", k.Crypto.DataUnitSize)
		c.text(30, y+69, style{size: 11, fill: violet}, "DEK %#x", k.Crypto.DEK)
	}
	tags := k.Wire.signed() && k.Wire.RefTag != nil
	right := right(k.Narrow)
	w := strip{from: from * g.step, to: to * g.step, right: right}
	above := y - 114 + boxHeight
	mem := strip{from: from * g.memStep, to: to * g.memStep, right: right}
	if to == g.blocks {
		w.to = g.wire
		mem.to = max(g.memory, mem.to)
	}
	for n := from; n < to; n++ {
		a, b := w.x(n*g.step), w.x((n+1)*g.step)-3
		text := soft
		if k.isBad("wire", n) {
			text = red
		}
		if len(k.Pieces) > 0 {
			c.between(mem.x(n*g.memStep), mem.x((n+1)*g.memStep), above, a, b-k.Wire.fieldWidth(b-a), y, k.tint(n), 0.7)
		}
		k.block(c, a, b, y, n, "wire", k.Wire)
		if !k.divided() {
			c.text((a+b)/2, y+28, style{anchor: "middle"}, "%s", plural(int(g.wire), "byte", "bytes"))
		}
		c.text(a, y+60, style{size: 10.5, fill: text, mono: true}, "%d", (k.First+n)*g.step)
		if tags {
			ref := *k.Wire.RefTag
			if k.Wire.IncRef {
				ref += uint32(k.First + n)
			}
			c.text(a, y+74, style{size: 10.5, fill: text, mono: true}, "ref 0x%08x", ref)
		}
	}
	if rest := g.wire - min(g.wire, g.blocks*g.step); rest > 0 && to == g.blocks {
		a := w.x(g.blocks * g.step)
		c.rect(a, y, right-a, boxHeight, pair{"#ffffff", line}, ` stroke-dasharray="3 3"`)
	}
	if tags {
		y += 14
	}
	return y + 62
}

// drawBad draws the legend and a box that describes the first bad block, from y down, with a line
// to the block, which ends at bottom. It returns the height of the picture.
func (k *Key) drawBad(c *canvas, bottom, y float64) float64 {
	g := k.geometry()
	legend := []string{}
	for _, d := range []*Domain{k.Wire, k.Memory} {
		if d.signed() {
			legend = append(legend, fmt.Sprintf("narrow: fields of %d", d.FieldSize), "bytes, drawn wider")
			if d.Type == "t10dif" {
				legend = append(legend, "guard 2, tags 2 + 4")
			}
			if d.AppTag != nil {
				legend = append(legend, fmt.Sprintf("application tag 0x%04x", *d.AppTag))
			}
			break
		}
	}
	if k.Crypto != nil {
		legend = append(legend, "hatched: ciphertext")
	}
	if len(k.Bad) == 0 && len(k.Pieces) > 0 && (k.Wire.signed() || k.Memory.signed()) {
		legend = append(legend, "no bad block found")
	}
	for i, text := range legend {
		c.text(30, y+56+18*float64(i), style{size: 11, fill: soft}, "%s", text)
	}
	height := y + 56 + 18*float64(len(legend)) + 10
	if len(k.Bad) == 0 {
		return max(height, y+30)
	}
	bad := k.Bad[0]
	from, to := k.window(g)
	n := min(max(bad.Block-min(k.First, bad.Block), from), max(to, 1)-1)
	step := g.step
	if bad.Domain == "memory" {
		step = g.memStep
	}
	s := strip{from: from * step, to: to * step, right: right(k.Narrow)}
	x, boxY := s.x((n+1)*step)-15, y+30
	bx, width, columns := max(left+20, min(x-285, s.right-564)), 560.0, [...]float64{0, 74, 232}
	if k.Narrow { // below the legend
		x, boxY = x+10, height
		bx, width, columns = 24, 426, [...]float64{0, 66, 176}
	}
	c.line(x, bottom, x, boxY, red, 2, "")
	c.rect(bx, boxY, width, 84, pair{"#fff5f5", red}, ` rx="6" id="bad-block"`)
	place := bad.Domain
	if len(k.Pieces) == 0 {
		place = "file"
	}
	c.text(bx+16, boxY+25, style{size: 14, bold: true, fill: red}, "%s in block %d, %s offset %d", bad.Kind, bad.Block, place, bad.Offset)
	for i, row := range [][3]string{{"stored", fmt.Sprintf("%#x", bad.Stored), k.where(g, &bad)}, {"computed", fmt.Sprintf("%#x", bad.Computed), bad.Where}} {
		for j, text := range row {
			c.text(bx+16+columns[j], boxY+48+20*float64(i), style{size: width/62 + 3.5, mono: true}, "%s", text)
		}
	}
	if more := len(k.Bad) - 1; more > 0 {
		c.text(bx+16, boxY+102, style{size: 11, fill: red}, "and %s", plural(more, "more bad block", "more bad blocks"))
	}
	return max(height, boxY+114)
}

// where returns the position of a bad block in words: its offset in the memory domain, and
// the entry of the layout with the offset in it.
func (k *Key) where(g geometry, bad *Bad) string {
	if len(k.Pieces) == 0 {
		return ""
	}
	at := bad.Block * g.memStep
	rest := at
	for i, p := range k.Pieces {
		if rest < uint64(p.Length) {
			return fmt.Sprintf("memory +%d, entry %d +%d", at, i, rest)
		}
		rest -= uint64(p.Length)
	}
	return fmt.Sprintf("memory +%d", at)
}
