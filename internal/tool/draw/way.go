package draw

import (
	"fmt"
	"sort"
	"time"
)

// Way is one RDMA READ or WRITE, with the memory keys of both sides through which its data
// passes, if there are some.
type Way struct {
	Op         string
	QP         uint32
	Request    uint64
	Bytes      uint64
	Process    int
	Begin      time.Time
	Took       time.Duration // 0: the completion is not in the trace
	Status     string        // status of the completion
	Requester  *Key          // nil: the requester's memory is a plain region
	Responder  *Key          // nil: the responder's key is a plain region, or not in the trace
	LKey, RKey uint32
	Narrow     bool // as in Key
}

// Ways returns the RDMA READs and WRITEs of a trace.
func Ways(trace []Record) []*Way {
	var all []*Way
	keys := map[uint32]*Key{} // the latest configuration of each key, by its index
	open := map[[2]uint64]*Way{}
	configured := Keys(trace)
	next := 0
	for i := range trace {
		r := &trace[i]
		f := &r.Fields
		switch {
		case r.Kind == "request" && r.Action == "UMR" && next < len(configured) && configured[next].Time.Equal(r.Time) && configured[next].Number == f.MKey:
			keys[f.MKey>>8] = configured[next]
			next++
		case r.Kind == "request" && (r.Action == "RDMA_READ" || r.Action == "RDMA_WRITE" || r.Action == "RDMA_WRITE_IMM"):
			w := &Way{Op: r.Action, QP: r.Number, Request: f.Request, Process: r.Process, Begin: r.Time, Bytes: f.Inline, RKey: f.RKey, Responder: keys[f.RKey>>8]}
			for _, e := range f.SGEs {
				w.Bytes += uint64(e.Length)
				w.LKey = e.LKey
				if k := keys[e.LKey>>8]; k != nil {
					w.Requester = k
				}
			}
			all = append(all, w)
			open[[2]uint64{uint64(r.Number), f.Request}] = w
		case (r.Kind == "completion" || r.Kind == "end") && (r.Fields.Opcode == "RDMA_READ" || r.Fields.Opcode == "RDMA_WRITE" || r.Fields.Opcode == "RDMA_WRITE_IMM"):
			if w := open[[2]uint64{uint64(r.Number), f.Request}]; w != nil {
				w.Took, w.Status = r.Time.Sub(w.Begin), r.Action
				delete(open, [2]uint64{uint64(r.Number), f.Request})
			}
		}
	}
	return all
}

// found returns a copy of a key that has only the bad blocks which were found during the
// request.
func (w *Way) found(k *Key) *Key {
	if k == nil {
		return nil
	}
	c := *k
	c.Narrow = w.Narrow
	// The blocks of a key are in the order of the trace, which is that of their times.
	from := sort.Search(len(k.Bad), func(i int) bool { return !k.Bad[i].Time.Before(w.Begin) })
	to := len(k.Bad)
	if w.Status != "" {
		end := w.Begin.Add(w.Took)
		to = max(from, sort.Search(len(k.Bad), func(i int) bool { return k.Bad[i].Time.After(end) }))
	}
	c.Bad = k.Bad[from:to]
	return &c
}

// Best returns the way with the most to show: if possible one with keys on both sides and with
// a bad block.
func Best(ways []*Way) *Way {
	score := func(w *Way) (n int) {
		for _, k := range []*Key{w.Requester, w.Responder} {
			if k != nil {
				n += 2
				if len(w.found(k).Bad) > 0 {
					n++
				}
			}
		}
		return n
	}
	var best *Way
	for _, w := range ways {
		if best == nil || score(w) > score(best) {
			best = w
		}
	}
	return best
}

// side is one side of a Way and its half of the picture.
type side struct {
	key      *Key
	name     string
	number   uint32
	bytes    uint64
	up       bool    // the wire is below
	right    float64 // where the domains end
	sends    bool    // its data goes to the wire
	buffersY float64 // y of the buffers
	memoryY  float64 // y of the memory domain
	wireY    float64 // y of the wire domain
}

// callout is the height of the box below a domain with a bad block.
const callout = 64.0

// bad returns the bad block of a domain, or nil.
func (s *side) bad(domain string) *Bad {
	if s.key == nil || len(s.key.Bad) == 0 || s.key.Bad[0].Domain != domain {
		return nil
	}
	return &s.key.Bad[0]
}

// room returns the height that the bad block of a domain needs below it.
func (s *side) room(domain string) float64 {
	if s.bad(domain) == nil {
		return 0
	}
	return callout
}

// SVG returns the picture, with the requester above the wire and the responder below it.
func (w *Way) SVG() []byte {
	title := fmt.Sprintf("the way of one %s of %d bytes", w.Op, w.Bytes)
	c := canvasFor(w.Narrow)
	c.text(30, 36, style{size: 15 + right(w.Narrow)/305, bold: true}, "%s", title)
	parts := []string{fmt.Sprintf("request %d on QP %#x of process %d, begun %s", w.Request, w.QP, w.Process, w.Begin.Format("15:04:05.000000"))}
	if w.Took > 0 {
		parts = append(parts, fmt.Sprintf("%s after %.3f ms", w.Status, float64(w.Took)/1e6))
	}
	top := 100 + c.lines(60, w.Narrow, parts)
	requester := side{key: w.found(w.Requester), name: "requester", number: w.LKey, bytes: w.Bytes, up: true, right: right(w.Narrow), sends: w.Op != "RDMA_READ"}
	responder := side{key: w.found(w.Responder), name: "responder", number: w.RKey, bytes: w.Bytes, right: right(w.Narrow), sends: w.Op == "RDMA_READ"}
	const step = boxHeight + 62 // from one domain to the next, with the names of the steps between them
	gap := func(s *side) float64 {
		if s.key == nil { // the memory is on the wire as it is
			return 0
		}
		return step
	}
	requester.buffersY = top
	requester.memoryY = top + 66
	if requester.key == nil {
		requester.memoryY = top + 6
	}
	requester.wireY = requester.memoryY + gap(&requester) + requester.room("memory")
	begin := requester.wireY + boxHeight + requester.room("wire")
	wire := begin + 60
	responder.wireY = wire + 60
	responder.memoryY = responder.wireY + gap(&responder) + responder.room("wire")
	responder.buffersY = responder.memoryY + boxHeight + 38 + responder.room("memory")
	if responder.key == nil {
		responder.buffersY = responder.memoryY + 14
	}
	c.height = responder.buffersY + 78
	requester.draw(c)
	responder.draw(c)
	// The wire.
	c.line(30, wire, requester.right, wire, faint, 2, ` stroke-dasharray="6 6"`)
	from, to, x := begin+4, responder.wireY-6, (left+requester.right)/2
	if w.Op == "RDMA_READ" {
		from, to = to, from
	}
	colour, below := blue, fmt.Sprintf("%d bytes on the wire", w.Bytes)
	if w.Status != "" && w.Status != "success" { // the trace does not tell how far the data went
		colour, below = red, w.Status+": this is the way that was asked for"
	}
	c.arrow(x, from, x, to, colour, 4)
	c.text(x+14, wire-8, style{bold: true, fill: colour}, "%s", w.Op)
	c.text(x+14, wire+20, style{size: 11, fill: soft}, "%s", below)
	c.text(30, wire-8, style{size: 11, fill: soft}, "the wire")
	return c.svg(title)
}

// drawBad describes the bad block of a domain at y, below the block, which is between a and b.
func (s *side) drawBad(c *canvas, domain string, y, a, b float64) {
	bad := s.bad(domain)
	width := min(560, s.right-24)
	x := max(24, min((a+b)/2-40, s.right-width))
	c.line((a+b)/2, y+boxHeight, (a+b)/2, y+boxHeight+10, red, 2, "")
	c.rect(x, y+boxHeight+10, width, 46, pair{"#fff5f5", red}, ` rx="6" id="bad-block"`)
	c.text(x+16, y+boxHeight+29, style{size: width/62 + 4, bold: true, fill: red}, "the %s's key: %s in block %d, %s offset %d", s.name, bad.Kind, bad.Block, bad.Domain, bad.Offset)
	c.text(x+16, y+boxHeight+47, style{size: width/62 + 2.4, mono: true}, "stored %#x, computed %#x; %s", bad.Stored, bad.Computed, bad.Where)
}

// draw draws the buffers, the memory domain and the wire domain of a side.
func (s *side) draw(c *canvas) {
	kind := fmt.Sprintf("region %#x", s.number)
	if s.number == 0 {
		kind = "inline data"
	}
	if s.key != nil {
		kind = fmt.Sprintf("memory key %#x", s.key.Number)
	}
	label := s.buffersY - 10
	if !s.up {
		label = s.buffersY + 54
	}
	c.text(left, label, style{bold: true}, "%s: %s", s.name, kind)
	if s.key == nil {
		c.text(30, s.memoryY+28, style{bold: true}, "memory")
		c.rect(left, s.memoryY, s.right-left, boxHeight, palette[0], "")
		c.text((left+s.right)/2, s.memoryY+28, style{anchor: "middle"}, "%d bytes, as they are on the wire", s.bytes)
		return
	}
	c.text(30, s.memoryY+20, style{bold: true}, "memory domain")
	c.text(30, s.wireY+20, style{bold: true}, "wire domain")
	k := s.key.expanded()
	g := k.geometry()
	from, to := k.window(g)
	c.text(30, s.memoryY+38, style{size: 11, fill: soft}, "%s", k.Memory.describe())
	c.text(30, s.wireY+38, style{size: 11, fill: soft}, "%s", k.Wire.describe())
	k.drawSteps(c, max(s.memoryY, s.wireY)-46, s.sends)
	mem := strip{from: from * g.memStep, to: to * g.memStep, right: s.right}
	at := uint64(0)
	shown := 0
	for i, p := range k.Pieces {
		if n := uint64(p.Length); at+n > mem.from && at < mem.to && shown < mostShown {
			a, b := mem.x(at), mem.x(at+n)
			colour := palette[i%len(palette)]
			c.between(a, b, min(s.buffersY+34, s.memoryY+boxHeight), a, b, max(s.buffersY, s.memoryY), colour.fill, 0.35)
			c.rect(a+2, s.buffersY, max(b-a-4, 1), 34, colour, ` rx="4"`)
			switch shown++; {
			case b-a > 130:
				c.text((a+b)/2, s.buffersY+21, style{size: 10.5, anchor: "middle", mono: true, fill: colour.stroke}, "%d: %#x", i, uint64(p.Addr))
			case b-a > textWidth(i):
				c.text((a+b)/2, s.buffersY+21, style{size: 10.5, anchor: "middle", mono: true, fill: colour.stroke}, "%d", i)
			}
		}
		at += uint64(p.Length)
	}
	c.text(30, s.buffersY+21, style{bold: true}, "buffers")
	wire := strip{from: from * g.step, to: to * g.step, right: s.right}
	for n := from; n < to; n++ {
		ma, mb := mem.x(n*g.memStep), mem.x((n+1)*g.memStep)-3
		wa, wb := wire.x(n*g.step), wire.x((n+1)*g.step)-3
		k.block(c, ma, mb, s.memoryY, n, "memory", k.Memory)
		k.block(c, wa, wb, s.wireY, n, "wire", k.Wire)
		if s.up {
			c.between(ma, mb, s.memoryY+boxHeight, wa, wb, s.wireY, k.tint(n), 0.7)
		} else {
			c.between(wa, wb, s.wireY+boxHeight, ma, mb, s.memoryY, k.tint(n), 0.7)
		}
	}
	// The first bad block, at its place. The window has it, unless its number is beyond the key.
	if bad := s.bad("memory"); bad != nil {
		a, b := mem.x(bad.Block*g.memStep), mem.x((bad.Block+1)*g.memStep)
		s.drawBad(c, "memory", s.memoryY, a, b)
	}
	if bad := s.bad("wire"); bad != nil {
		a, b := wire.x(bad.Block*g.step), wire.x((bad.Block+1)*g.step)
		s.drawBad(c, "wire", s.wireY, a, b)
	}
}

// block draws block n of a domain with its field.
func (k *Key) block(c *canvas, a, b, y float64, n uint64, domain string, d *Domain) {
	p, attrs := pair{"#f3f5f8", line}, ""
	data, _ := k.ciphered(domain)
	if data {
		p.fill = "#ece6fb"
	}
	bad := k.isBad(domain, n)
	if bad {
		p, attrs = pair{"#ffd7d5", red}, ` stroke-width="2" class="bad"`
	}
	field := d.fieldWidth(b - a)
	c.rect(a, y, b-a-field, boxHeight, p, attrs)
	if data {
		c.hatch(a, y, b-a-field, boxHeight)
	}
	if k.divided() {
		c.text((a+b-field)/2, y+28, style{anchor: "middle", halo: data}, "%d", k.First+n)
	}
	if field > 0 {
		k.field(c, b-field, y, field, domain, bad)
	}
}
