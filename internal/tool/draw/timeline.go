package draw

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// Connection is the packets of one direction of a reliable connection: the requests of one side
// and the answers of the other.
type Connection struct {
	Requester, Responder netip.Addr
	DestQP               uint32 // QP number in the requests
	events               []event
	answers              map[direction][]event // those from the responder to the requester, by their QP
	whole                bool                  // complete was called
}

// event is a packet that the recording of its sender has, or that of its receiver, or both.
type event struct {
	bth         wire.BTH
	syndrome    wire.Syndrome
	request     bool
	again       bool // its PSN was sent before
	lost        bool
	sent, taken time.Time // zero: not recorded
}

// when returns the time at which the packet was sent or, if that is unknown, received.
func (e *event) when() time.Time {
	if !e.sent.IsZero() {
		return e.sent
	}
	return e.taken
}

// direction identifies one direction of a connection by fields that all its packets share.
type direction struct {
	from, to netip.Addr
	qp       uint32
}

// Connections returns the reliable connections in recordings, those with the most request packets first.
// Recordings of both sides may be given together.
func Connections(recordings ...[]pcap.Packet) []*Connection {
	requests, answers := map[direction][]event{}, map[[2]netip.Addr]map[direction][]event{}
	for _, d := range join(recordings) {
		if d.event.request {
			requests[d.direction] = append(requests[d.direction], d.event)
			continue
		}
		way := [2]netip.Addr{d.from, d.to}
		if answers[way] == nil {
			answers[way] = map[direction][]event{}
		}
		answers[way][d.direction] = append(answers[way][d.direction], d.event)
	}
	var all []*Connection
	for d, events := range requests {
		all = append(all, &Connection{Requester: d.from, Responder: d.to, DestQP: d.qp, events: events, answers: answers[[2]netip.Addr{d.to, d.from}]})
	}
	slices.SortFunc(all, func(a, b *Connection) int {
		if n := len(b.events) - len(a.events); n != 0 {
			return n
		}
		return int(a.DestQP) - int(b.DestQP)
	})
	return all
}

// directed is an event with its direction.
type directed struct {
	direction
	event
}

// join parses the packets of all recordings. A packet that both its sender and its receiver
// recorded is one element of the result.
func join(recordings [][]pcap.Packet) []*directed {
	var all []*directed
	sent := map[string][]*directed{} // by payload: those that arrived and are not found yet
	heard := map[direction]bool{}    // directions whose receiver was recorded
	var taken []pcap.Packet
	for _, packets := range recordings {
		for i := range packets {
			p := &packets[i]
			if !p.Sent {
				taken = append(taken, *p)
				continue
			}
			if d := parsePacket(p); d != nil {
				d.sent, d.lost = p.Time, p.Lost
				all = append(all, d)
				if !d.lost {
					sent[string(p.Payload)] = append(sent[string(p.Payload)], d)
				}
			}
		}
	}
	for i := range taken {
		p := &taken[i]
		d := parsePacket(p)
		if d == nil {
			continue
		}
		heard[d.direction] = true
		if waiting := sent[string(p.Payload)]; len(waiting) > 0 {
			waiting[0].taken = p.Time
			sent[string(p.Payload)] = waiting[1:]
			continue
		}
		d.taken = p.Time
		all = append(all, d)
	}
	for _, d := range all {
		// A packet is lost if its receiver's recording does not have it.
		d.lost = d.lost || d.taken.IsZero() && heard[d.direction]
	}
	slices.SortStableFunc(all, func(a, b *directed) int { return a.when().Compare(b.when()) })
	return all
}

// parsePacket returns the event of a packet of a reliable connection, or nil.
func parsePacket(p *pcap.Packet) *directed {
	h, n, err := wire.ParseBTH(p.Payload)
	if err != nil || h.Opcode.Service() != wire.ServiceRC {
		return nil
	}
	layout := h.Opcode.Layout()
	if layout&(wire.IsRequest|wire.IsResponse) == 0 {
		return nil
	}
	d := &directed{direction{p.From.Addr(), p.To.Addr(), h.DestQP}, event{bth: h, request: layout&wire.IsRequest != 0}}
	if layout&wire.HasAETH != 0 {
		aeth, _, err := wire.ParseAETH(p.Payload[n:])
		if err != nil {
			return nil
		}
		d.syndrome = aeth.Syndrome
	}
	return d
}

// complete adds the answers to the events. A recording can have many connections between two hosts, of
// which few are drawn: to find the answers of each would take the square of their number.
func (c *Connection) complete() {
	if c.whole {
		return
	}
	c.whole = true
	c.events = append(c.events, c.answersOf()...)
	c.answers = nil
	c.note()
}

// answersOf returns the answers of the direction that shares the most PSNs with the requests.
func (c *Connection) answersOf() (best []event) {
	psns := map[uint32]bool{}
	for i := range c.events {
		psns[c.events[i].bth.PSN] = true
	}
	most, qp := 0, uint32(0)
	for d, events := range c.answers {
		n := 0
		for i := range events {
			if psns[events[i].bth.PSN] {
				n++
			}
		}
		if n > most || n == most && n > 0 && d.qp < qp {
			most, best, qp = n, events, d.qp
		}
	}
	return best
}

// note sorts the events by time and marks the packets that were sent again.
func (c *Connection) note() {
	slices.SortStableFunc(c.events, func(a, b event) int { return a.when().Compare(b.when()) })
	seen := map[[2]uint32]bool{}
	for i := range c.events {
		e := &c.events[i]
		if e.bth.Opcode == wire.Acknowledge {
			continue
		}
		id := [2]uint32{e.bth.PSN, 0}
		if e.request {
			id[1] = 1
		}
		e.again = seen[id]
		seen[id] = true
	}
}

// row is one arrow of a timeline. It stands for one packet, or for several of the same
// operation with consecutive PSNs.
type row struct {
	event            // the first packet
	last   uint32    // PSN of the last packet
	count  int       // number of packets
	endAt  time.Time // when the last one was received
	opcode string
}

// rows returns the arrows of the connection's packets.
func (c *Connection) rows() (rows []row) {
	for _, e := range c.events {
		name := operation(&e)
		if n := len(rows); n > 0 {
			r := &rows[n-1]
			if r.request == e.request && r.lost == e.lost && r.again == e.again && r.opcode == name && name != "" &&
				e.bth.PSN == (r.last+1)&wire.PSNMask && e.when().Sub(r.when()) < joined && r.sent.IsZero() == e.sent.IsZero() {
				r.last, r.endAt = e.bth.PSN, e.taken
				r.count++
				continue
			}
		}
		rows = append(rows, row{event: e, last: e.bth.PSN, count: 1, endAt: e.taken, opcode: name})
	}
	return rows
}

// joined is the longest time between the first and the last packet of one arrow.
const joined = 200 * time.Microsecond

// operation returns the name of a packet's operation. It is "" for acknowledgements, each of
// which has an arrow of its own.
func operation(e *event) string {
	switch l := e.bth.Opcode.Layout(); {
	case e.bth.Opcode == wire.Acknowledge:
		return ""
	case e.bth.Opcode == wire.ReadRequest:
		return "READ"
	case l&wire.IsSend != 0:
		return "SEND"
	case l&wire.IsWrite != 0:
		return "WRITE"
	case l&(wire.HasAtomicETH|wire.HasAtomicAckETH) != 0:
		return "atomic"
	}
	return "READ response"
}

// label describes an arrow. PSNs are counted from base.
func (r *row) label(base uint32) string {
	at := func(psn uint32) uint32 { return (psn - base) & wire.PSNMask }
	first, last := at(r.bth.PSN), at(r.last)
	if r.opcode == "" {
		switch r.syndrome.Kind() {
		case wire.KindRNR:
			return fmt.Sprintf("RNR NAK for PSN %d: no receive request", first)
		case wire.KindNAK:
			if r.syndrome == wire.NAKSequence {
				return fmt.Sprintf("NAK: PSN %d is missing", first)
			}
			return fmt.Sprintf("NAK for PSN %d: code %d", first, r.syndrome.Value())
		}
		return fmt.Sprintf("ACK up to PSN %d", first)
	}
	text := r.opcode
	if r.again {
		text = "again " + text
	}
	if r.count == 1 {
		text += fmt.Sprintf(", PSN %d", first)
	} else {
		text += fmt.Sprintf(", PSN %d to %d (%d packets)", first, last, r.count)
	}
	if r.lost {
		text += ": lost on the way"
	}
	return text
}

const (
	mostRows  = 60
	rowHeight = 46.0
	xLeft     = 380.0
	xRight    = 820.0
	longPause = 2 * time.Millisecond
)

// SVG returns the timeline of the connection.
func (c *Connection) SVG() []byte {
	c.complete()
	rows := c.rows()
	sent, again, lost := 0, 0, 0
	for i := range c.events {
		if e := &c.events[i]; e.request {
			sent++
			if e.again {
				again++
			}
			if e.lost {
				lost++
			}
		}
	}
	base := c.events[0].bth.PSN
	for i := range c.events {
		if c.events[i].request {
			base = c.events[i].bth.PSN
			break
		}
	}
	title := fmt.Sprintf("requests from %v to %v QP %#x", c.Requester, c.Responder, c.DestQP)
	v := &canvas{width: 1100}
	v.text(30, 36, style{size: 19, bold: true}, "%s", title)
	parts := []string{plural(sent, "request packet", "request packets")}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d lost", lost))
	}
	if again > 0 {
		parts = append(parts, fmt.Sprintf("%d sent again", again))
	}
	v.text(30, 60, style{fill: soft}, "RC; %s; PSNs counted from %d; rows in order, not to scale", strings.Join(parts, ", "), base)
	v.text(xLeft, 100, style{bold: true, anchor: "middle"}, "%v (requester)", c.Requester)
	v.text(xRight, 100, style{bold: true, anchor: "middle"}, "%v (responder)", c.Responder)
	y, top := 140.0, 110.0
	start := c.events[0].when()
	last := start
	for i := range rows {
		r := &rows[i]
		if i == mostRows {
			v.text((xLeft+xRight)/2, y, style{fill: soft, anchor: "middle"}, "%s more", plural(len(rows)-i, "arrow", "arrows"))
			y += rowHeight
			break
		}
		if pause := r.when().Sub(last); pause > longPause {
			v.line(xLeft, top, xLeft, y-24, line, 2, "")
			v.line(xRight, top, xRight, y-24, line, 2, "")
			v.text((xLeft+xRight)/2, y-6, style{size: 12, fill: soft, anchor: "middle"}, "%.1f ms later", float64(pause)/1e6)
			y += 30
			top = y - 24
		}
		last = r.when()
		r.draw(v, y, start, base)
		y += rowHeight
	}
	v.line(xLeft, top, xLeft, y, line, 2, "")
	v.line(xRight, top, xRight, y, line, 2, "")
	v.height = y + 40
	return v.svg(title)
}

// draw draws the arrow at y.
func (r *row) draw(v *canvas, y float64, start time.Time, base uint32) {
	const drop = 26
	colour, width := blue, 2.0
	switch {
	case r.lost:
		colour, width = red, 2.5
	case r.opcode == "" && r.syndrome.Kind() != wire.KindACK:
		colour = red
	case r.again:
		colour = orange
	case !r.request:
		colour = green
	}
	if r.count > 1 && !r.lost {
		width = 4
	}
	from, to, fromText, toText, anchor := xLeft, xRight, xLeft-14, xRight+14, ""
	labelX := xLeft + 12
	if !r.request {
		from, to, fromText, toText = to, from, toText, fromText
		labelX, anchor = xRight-12, "end"
	}
	stamp := func(x, y float64, t time.Time) {
		if t.IsZero() {
			return
		}
		end := ""
		if x < xLeft {
			end = "end"
		}
		v.text(x, y, style{size: 11, fill: soft, mono: true, anchor: end}, "%.3f ms", float64(t.Sub(start))/1e6)
	}
	v.text(labelX, y-5, style{size: 12, fill: colour, anchor: anchor}, "%s", r.label(base))
	stamp(fromText, y+4, r.sent)
	if r.lost {
		x := from + (to-from)*0.62
		v.line(from, y, x, y+drop*0.62, colour, width, ` class="lost"`)
		v.line(x-7, y+drop*0.62-7, x+7, y+drop*0.62+7, colour, 3, "")
		v.line(x-7, y+drop*0.62+7, x+7, y+drop*0.62-7, colour, 3, "")
		return
	}
	v.arrow(from, y, to, y+drop, colour, width)
	stamp(toText, y+drop+4, r.taken)
}
