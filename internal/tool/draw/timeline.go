package draw

import (
	"cmp"
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
	DestQP               uint32        // QP number in the requests: that of the responder
	sourceQP             uint32        // QP number in the answers: that of the requester; 0: no answer is recorded
	shifted              time.Duration // by which the times of the responder are moved
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
	probe       bool // it was sent again because no answer came
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
	if len(p.Payload) < wire.BTHLen {
		return nil
	}
	h := wire.ParseBTH(p.Payload)
	if h.Opcode.Service() != wire.ServiceRC {
		return nil
	}
	layout := h.Opcode.Layout()
	if layout&(wire.IsRequest|wire.IsResponse) == 0 {
		return nil
	}
	d := &directed{direction{p.From.Addr(), p.To.Addr(), h.DestQP}, event{bth: h, request: layout&wire.IsRequest != 0}}
	if layout&wire.HasAETH != 0 {
		if len(p.Payload) < wire.BTHLen+wire.AETHLen {
			return nil
		}
		d.syndrome = wire.ParseAETH(p.Payload[wire.BTHLen:]).Syndrome
	}
	return d
}

// complete adds the answers to the events. It is called for connections that are drawn only: to find the answers of all
// connections between two hosts takes time with the square of their number.
func (c *Connection) complete() {
	if c.whole {
		return
	}
	c.whole = true
	answers, qp := c.answersOf()
	c.sourceQP = qp
	c.events = append(c.events, answers...)
	c.answers = nil
	c.align()
	c.note()
}

// Title names the connection with the QP numbers of both sides.
func (c *Connection) Title() string {
	c.complete()
	return fmt.Sprintf("%v %s to %v QP %#x", c.Requester, c.source(), c.Responder, c.DestQP)
}

// source returns the requester's QP number in words.
func (c *Connection) source() string {
	if c.sourceQP == 0 {
		return "(QP not recorded)"
	}
	return fmt.Sprintf("QP %#x", c.sourceQP)
}

// align moves the times of the responder if its clock and that of the requester differ so much that a packet
// arrives before it is sent. Then it halves the difference between the shortest ways of the two directions.
func (c *Connection) align() {
	const none = time.Duration(1<<63 - 1)
	there, back := none, none // shortest time from the requester to the responder, and from there
	for i := range c.events {
		switch e := &c.events[i]; {
		case e.sent.IsZero() || e.taken.IsZero():
		case e.request:
			there = min(there, e.taken.Sub(e.sent))
		default:
			back = min(back, e.taken.Sub(e.sent))
		}
	}
	if there == none || back == none || there >= 0 && back >= 0 {
		return
	}
	c.shifted = (back - there) / 2
	for i := range c.events {
		t := &c.events[i].taken
		if !c.events[i].request {
			t = &c.events[i].sent
		}
		if !t.IsZero() {
			*t = t.Add(c.shifted)
		}
	}
}

// answersOf returns the answers of the direction that shares the most PSNs with the requests, and the QP that
// they go to.
func (c *Connection) answersOf() (best []event, qp uint32) {
	psns := map[uint32]bool{}
	for i := range c.events {
		psns[c.events[i].bth.PSN] = true
	}
	most := 0
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
	return best, qp
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
	c.noteProbes()
}

// arrival returns the time at which an answer reached the requester or, if that is unknown, when it was sent.
func (e *event) arrival() time.Time {
	if !e.taken.IsZero() {
		return e.taken
	}
	return e.sent
}

// noteProbes marks the requests that were sent again because no answer came for about a round trip. What
// makes a requester send a packet again otherwise is an answer, a moment before: a NAK, or an
// acknowledgement of later packets. Only an RNR NAK asks it to wait.
func (c *Connection) noteProbes() {
	var answers []*event
	for i := range c.events {
		if e := &c.events[i]; !e.request && !e.lost {
			answers = append(answers, e)
		}
	}
	slices.SortStableFunc(answers, func(a, b *event) int { return a.arrival().Compare(b.arrival()) })
	first, before := map[uint32]time.Time{}, map[uint32]time.Time{} // when a PSN was sent for the first time, and last
	const unknown = time.Hour
	roundTrip := time.Duration(unknown)               // the shortest one
	next, wait, moment := 0, time.Time{}, time.Time{} // the next answer, the last RNR NAK, and until when the last answer explains what is sent
	previous := (*event)(nil)                         // the last request
	for i := range c.events {
		e := &c.events[i]
		if !e.request {
			continue
		}
		now := e.when()
		for ; next < len(answers) && !answers[next].arrival().After(now); next++ {
			a := answers[next]
			at := a.arrival()
			if t, ok := first[a.bth.PSN]; ok {
				roundTrip = min(roundTrip, at.Sub(t))
			}
			moment = at.Add(roundTrip)
			if a.bth.Opcode == wire.Acknowledge {
				switch a.syndrome.Kind() {
				case wire.KindRNR:
					wait = at
				case wire.KindNAK:
					moment = at.Add(4 * roundTrip)
				}
			}
		}
		last, ok := before[e.bth.PSN]
		follows := previous != nil && previous.again && !previous.probe && e.bth.PSN == (previous.bth.PSN+1)&wire.PSNMask
		if e.again && ok && !follows && wait.Before(last) && !now.Before(moment) {
			e.probe = true
		}
		if _, ok := first[e.bth.PSN]; !ok {
			first[e.bth.PSN] = now
		}
		before[e.bth.PSN] = now
		previous = e
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
			if r.request == e.request && r.lost == e.lost && r.again == e.again && r.probe == e.probe && r.opcode == name && name != "" &&
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
	switch {
	case r.probe:
		text = "probe: " + text
	case r.again:
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
	xLeft     = 280.0
	xRight    = 900.0
	longPause = 2 * time.Millisecond
)

// end is where an arrow begins or ends. The ends of a timeline are in the order of their times, so that the
// times of each column rise from top to bottom.
type end struct {
	row   *row
	at    time.Time
	taken bool // the packet was received, not sent
}

// ends returns the ends of arrows whose times are known, in their order. An arrow whose beginning is
// unknown has its end only, and the other way round.
func ends(rows []row) (all []end) {
	for i := range rows {
		r := &rows[i]
		if !r.sent.IsZero() {
			all = append(all, end{r, r.sent, false})
		}
		if !r.taken.IsZero() && (!r.lost || r.sent.IsZero()) {
			all = append(all, end{r, r.taken, true})
		}
	}
	slices.SortStableFunc(all, func(a, b end) int {
		if n := a.at.Compare(b.at); n != 0 {
			return n
		}
		return cmp.Compare(btoi(a.taken), btoi(b.taken)) // sent first
	})
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// SVG returns the timeline of the connection.
func (c *Connection) SVG() []byte {
	c.complete()
	rows := c.rows()
	sent, again, probes, lost := 0, 0, 0, 0
	for i := range c.events {
		if e := &c.events[i]; e.request {
			sent++
			again += btoi(e.again && !e.probe)
			probes += btoi(e.probe)
			lost += btoi(e.lost)
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
	v := &canvas{width: 1180}
	v.text(30, 36, style{size: 19, bold: true}, "requests from %s", c.Title())
	parts := []string{plural(sent, "request packet", "request packets")}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d lost", lost))
	}
	if again > 0 {
		parts = append(parts, fmt.Sprintf("%d sent again", again))
	}
	if probes > 0 {
		parts = append(parts, plural(probes, "probe", "probes")+" (sent again because no answer came)")
	}
	v.text(30, 60, style{fill: soft}, "RC; %s; PSNs counted from %d; rows in order, not to scale", strings.Join(parts, ", "), base)
	top := 122.0
	if c.shifted != 0 {
		v.text(30, 78, style{fill: soft}, "the clocks differ: the responder's times are moved by %.3f ms", float64(c.shifted)/1e6)
		top += 18
	}
	v.text(xLeft, top-30, style{bold: true, anchor: "middle"}, "requester")
	v.text(xLeft, top-14, style{size: 12, anchor: "middle"}, "%v, %s", c.Requester, c.source())
	v.text(xRight, top-30, style{bold: true, anchor: "middle"}, "responder")
	v.text(xRight, top-14, style{size: 12, anchor: "middle"}, "%v, QP %#x", c.Responder, c.DestQP)
	rest := rows[min(len(rows), mostRows):]
	v.height = c.drawRows(v, rows[:len(rows)-len(rest)], top, base)
	if len(rest) > 0 {
		v.text((xLeft+xRight)/2, v.height, style{fill: soft, anchor: "middle"}, "%s more", plural(len(rest), "arrow", "arrows"))
		v.height += 30
	}
	return v.svg(title)
}

// drawRows draws the arrows from y down, and returns the y below them.
func (c *Connection) drawRows(v *canvas, rows []row, y float64, base uint32) float64 {
	const (
		labelled = 32.0 // height of the beginning of an arrow, with its label
		plain    = 17.0 // height of a time
	)
	all := ends(rows)
	if len(all) == 0 {
		return y
	}
	top, start, last := y, all[0].at, all[0].at
	columns := [2]float64{y, y} // y of the last end at the left and at the right
	from, to := map[*row]float64{}, map[*row]float64{}
	type gap struct {
		y     float64
		pause time.Duration
	}
	var gaps []gap
	pillars := func(down float64) {
		v.line(xLeft, top, xLeft, down, line, 2, "")
		v.line(xRight, top, xRight, down, line, 2, "")
	}
	for _, e := range all {
		if pause := e.at.Sub(last); pause > longPause {
			down := max(columns[0], columns[1]) + 16
			pillars(down)
			gaps = append(gaps, gap{down + 17, pause})
			y, top = down+26, down+26
			columns = [2]float64{y, y}
		}
		last = e.at
		side := btoi(e.row.request == e.taken) // 0: the requester's
		height := labelled
		if e.taken && !e.row.sent.IsZero() {
			height = plain
		}
		y = max(y, columns[side]+height)
		if begun, ok := from[e.row]; ok {
			y = max(y, begun+8)
		}
		columns[side] = y
		if e.taken {
			to[e.row] = y
			if _, ok := from[e.row]; !ok {
				from[e.row] = y - 12
			}
		} else {
			from[e.row] = y
		}
	}
	down := max(columns[0], columns[1]) + 30
	pillars(down)
	for i := range rows { // below the labels
		rows[i].drawArrow(v, from[&rows[i]], to[&rows[i]])
	}
	for _, g := range gaps {
		v.text((xLeft+xRight)/2, g.y, style{size: 12, fill: soft, anchor: "middle", halo: true}, "%.1f ms later", float64(g.pause)/1e6)
	}
	for i := range rows {
		rows[i].drawText(v, from[&rows[i]], to[&rows[i]], start, base)
	}
	return down + 30
}

// colour returns the colour and the width of the arrow.
func (r *row) colour() (colour string, width float64) {
	colour, width = blue, 2.0
	switch {
	case r.lost:
		return red, 2.5
	case r.opcode == "" && r.syndrome.Kind() != wire.KindACK:
		colour = red
	case r.probe:
		colour = violet
	case r.again:
		colour = orange
	case !r.request:
		colour = green
	}
	if r.count > 1 {
		width = 4
	}
	return colour, width
}

// columns returns the x of the sender and that of the receiver.
func (r *row) columns() (from, to float64) {
	if r.request {
		return xLeft, xRight
	}
	return xRight, xLeft
}

// drawArrow draws the arrow from y1 down to y2, which is 0 if the time of its end is unknown.
func (r *row) drawArrow(v *canvas, y1, y2 float64) {
	colour, width := r.colour()
	from, to := r.columns()
	attrs := ""
	if r.probe {
		attrs = ` stroke-dasharray="8 4"`
	}
	switch {
	case r.lost:
		x, y := from+(to-from)*0.62, y1+12
		v.line(from, y1, x, y, colour, width, ` class="lost"`+attrs)
		v.line(x-7, y-7, x+7, y+7, colour, 3, "")
		v.line(x-7, y+7, x+7, y-7, colour, 3, "")
		return
	case y2 == 0:
		y2 = y1 + 14
	}
	v.line(from, y1, to, y2, colour, width, fmt.Sprintf(` marker-end="url(#arrow-%s)"%s`, strings.TrimPrefix(colour, "#"), attrs))
}

// drawText draws the label and the times of the arrow.
func (r *row) drawText(v *canvas, y1, y2 float64, start time.Time, base uint32) {
	colour, _ := r.colour()
	from, to := r.columns()
	x, anchor := from+12, ""
	if !r.request {
		x, anchor = from-12, "end"
	}
	v.text(x, y1-6, style{size: 12, fill: colour, anchor: anchor, halo: true}, "%s", r.label(base))
	stamp := func(x, y float64, t time.Time) {
		if t.IsZero() {
			return
		}
		anchor := ""
		if x == xLeft {
			x, anchor = x-14, "end"
		} else {
			x += 14
		}
		v.text(x, y+4, style{size: 11, fill: soft, mono: true, anchor: anchor}, "%.3f ms", float64(t.Sub(start))/1e6)
	}
	stamp(from, y1, r.sent)
	if y2 != 0 {
		stamp(to, y2, r.taken)
	}
}
