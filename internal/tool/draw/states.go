package draw

import (
	"cmp"
	"fmt"
	"strings"
)

// States is what a queue pair went through.
type States struct {
	Process int
	QP      uint32
	moves   []*Record
}

// AllStates returns the states of the queue pairs of a trace that were moved, in the order of their first move.
func AllStates(trace []Record) []*States {
	var all []*States
	latest := map[[2]uint32]*States{}
	for i := range trace {
		r := &trace[i]
		id := [2]uint32{uint32(r.Process), r.Number}
		switch {
		case r.Kind == "object" && r.Object == "qp" && r.Action == "create":
			delete(latest, id) // another QP has the number
		case r.Kind == "state":
			s := latest[id]
			if s == nil {
				s = &States{Process: r.Process, QP: r.Number}
				latest[id] = s
				all = append(all, s)
			}
			s.moves = append(s.moves, r)
		}
	}
	return all
}

// The places of the states in the picture, which is narrow enough for a phone.
var places = map[string][2]float64{
	"RESET": {24, 70}, "INIT": {24, 160}, "RTR": {24, 250}, "RTS": {24, 340}, "ERR": {306, 160}, "SQE": {306, 340}, "SQD": {306, 250},
}

const stateWidth, stateHeight = 120.0, 42.0

// usual are the moves that every queue pair may make.
var usual = [][2]string{{"RESET", "INIT"}, {"INIT", "RTR"}, {"RTR", "RTS"}, {"RTS", "SQD"}, {"RTS", "SQE"}, {"RTR", "ERR"}, {"RTS", "ERR"}, {"INIT", "ERR"}, {"ERR", "RESET"}}

// mostMoves is the number of moves that the picture has: the last ones.
const mostMoves = 14

// SVG returns the picture: the states, and the moves with their numbers, times and attributes.
func (s *States) SVG() []byte {
	title := fmt.Sprintf("the states of QP %#x", s.QP)
	c := &canvas{width: 450}
	c.text(24, 34, style{size: 17, bold: true}, "%s", title)
	c.text(24, 54, style{size: 12, fill: soft}, "process %d", s.Process)
	moves := s.moves[max(len(s.moves)-mostMoves, 0):]
	made := map[[2]string][]string{}
	been := map[string]bool{}
	for i, m := range moves {
		move := [2]string{m.Fields.From, m.Action}
		made[move] = append(made[move], fmt.Sprint(i+1))
		been[m.Fields.From], been[m.Action] = true, true
	}
	for _, u := range usual {
		if made[u] == nil {
			c.move(u, line, 1, "")
		}
	}
	for move, numbers := range made {
		c.move(move, blue, 2.5, strings.Join(numbers, ", "))
	}
	for name, at := range places {
		p, text := pair{"#f3f5f8", line}, soft
		switch {
		case name == moves[len(moves)-1].Action && (name == "ERR" || name == "SQE"):
			p, text = pair{"#ffd7d5", red}, red
		case name == moves[len(moves)-1].Action:
			p, text = pair{"#cfe3ff", blue}, blue
		case been[name]:
			p, text = pair{"#f3f5f8", ink}, ink
		}
		c.rect(at[0], at[1], stateWidth, stateHeight, p, ` rx="6" stroke-width="2"`)
		c.text(at[0]+stateWidth/2, at[1]+27, style{size: 15, bold: true, anchor: "middle", fill: text}, "%s", name)
	}
	y := 418.0
	for i, m := range moves {
		colour := ink
		if m.Fields.By == "device" {
			colour = red
		}
		c.text(24, y, style{size: 13, bold: true, fill: colour}, "%d. %s to %s, by the %s", i+1, m.Fields.From, m.Action, m.Fields.By)
		c.text(426, y, style{size: 11, anchor: "end", fill: soft, mono: true}, "%s", m.Time.Format("15:04:05.000000"))
		y += 19
		for _, text := range attributes(m) {
			c.text(42, y, style{size: 12, fill: soft}, "%s", text)
			y += 17
		}
		y += 5
	}
	c.height = y + 6
	return c.svg(title)
}

// move draws an arrow from a state to another. Its numbers are beside it.
func (c *canvas) move(m [2]string, colour string, width float64, numbers string) {
	from, ok := places[m[0]]
	to, ok2 := places[m[1]]
	if !ok || !ok2 {
		return
	}
	x1, y1, x2, y2 := from[0]+stateWidth/2, from[1]+stateHeight, to[0]+stateWidth/2, to[1]
	switch {
	case from[0] < to[0]: // to the right
		x1, y1, x2, y2 = from[0]+stateWidth, from[1]+stateHeight/2, to[0], to[1]+stateHeight/2
	case from[0] > to[0]:
		x1, y1, x2, y2 = from[0], from[1]+stateHeight/2-8, to[0]+stateWidth, to[1]+stateHeight/2-8
	case from[1] > to[1]: // up, beside the arrow that goes down
		x1, y1, x2, y2 = x1+30, from[1], x1+30, to[1]+stateHeight
	}
	c.arrow(x1, y1, x2, y2, colour, width)
	if numbers != "" {
		c.text((x1+x2)/2+8, (y1+y2)/2-3, style{size: 13, bold: true, fill: colour, halo: true}, "%s", numbers)
	}
}

// attributes returns what a move set, in words.
func attributes(m *Record) (texts []string) {
	f := &m.Fields
	if f.Access != nil {
		rights := ""
		for _, a := range f.Access {
			if right, remote := strings.CutPrefix(a, "REMOTE_"); remote {
				rights += ", " + strings.ToLower(right)
			}
		}
		texts = append(texts, "the peer may: "+strings.TrimPrefix(cmp.Or(rights, "nothing"), ", "))
	}
	if f.Remote != "" {
		texts = append(texts, fmt.Sprintf("peer: QP %#x at %s, path MTU %d", f.DestQP, f.Remote, f.PathMTU))
	}
	if f.Timeout != nil {
		texts = append(texts, fmt.Sprintf("timeout %d, retries %d, RNR retries %d", *f.Timeout, f.RetryCnt, f.RNRRetry))
	}
	return texts
}
