package view

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// head is the part of a line of a trace by which it is kept.
type head struct {
	Process int
	Kind    string
	Object  string
	Number  uint32
	Action  string
	Fields  struct {
		MKey uint32
	}
	Rows []json.RawMessage // of a line of counts
}

// objectID identifies an object of a run.
type objectID struct {
	process int
	object  string
	number  uint32
}

// object is what is kept of an object: its last lines of each kind.
type object struct {
	lines map[string][]keptLine
	dead  bool
}

// keptLine is a line with its place in the trace.
type keptLine struct {
	order uint64
	text  []byte
}

// kept is the state of a run at a moment, as the lines that tell it: the last ones of each object. Its size is
// bounded: objects that were destroyed go first.
type kept struct {
	objects map[objectID]*object
	counts  map[objectID][]byte // rows
	dead    []objectID          // the oldest first
	order   uint64
	bytes   int
	refused int // lines that had no room
}

// The bounds of what is kept.
const (
	mostKept  = 24 << 20 // bytes
	mostLine  = 256 << 10
	mostDead  = 1024
	keptStuff = 8  // lines of an object and a kind
	keptState = 14 // a QP that goes through all states twice
	perLine   = 64 // bytes that a line takes beside its text, about
)

// take adds a line of a trace.
func (k *kept) take(line []byte) {
	var h head
	if len(line) > mostLine || json.Unmarshal(line, &h) != nil {
		k.refused++
		return
	}
	if k.objects == nil {
		k.objects, k.counts = map[objectID]*object{}, map[objectID][]byte{}
	}
	if h.Kind == "counts" {
		for _, row := range h.Rows {
			var c head
			if json.Unmarshal(row, &c) == nil {
				if id := (objectID{c.Process, "qp", c.Number}); k.objects[id] != nil {
					k.counts[id] = row
				}
			}
		}
		return
	}
	id, kind := objectID{h.Process, h.Object, h.Number}, h.Kind
	switch {
	case h.Action == "UMR" && h.Fields.MKey != 0: // belongs to the key that it configures
		id = objectID{h.Process, "mkey", h.Fields.MKey}
	case kind == "end":
		kind = "completion"
	}
	if id.object == "mkey" {
		id.number >>= 8 // the tag of a key may change
	}
	o := k.objects[id]
	if o != nil && o.dead && kind == "object" && h.Action == "create" { // another object with the number
		k.drop(id)
		k.dead = slices.DeleteFunc(k.dead, func(d objectID) bool { return d == id })
		o = nil
	}
	if o == nil {
		for k.bytes > mostKept && len(k.dead) > 0 {
			k.dropOldest()
		}
		if k.bytes > mostKept {
			k.refused++
			return
		}
		o = &object{lines: map[string][]keptLine{}}
		k.objects[id] = o
	}
	most := keptStuff
	if kind == "state" {
		most = keptState
	}
	k.order++
	lines := append(o.lines[kind], keptLine{k.order, bytes.Clone(line)})
	k.bytes += len(line) + perLine
	if len(lines) > most {
		k.bytes -= len(lines[0].text) + perLine
		lines = slices.Delete(lines, 0, 1)
	}
	o.lines[kind] = lines
	if kind != "object" || h.Action != "destroy" {
		return
	}
	if h.Object != "qp" && h.Object != "mkey" { // nobody looks at it any more
		k.drop(id)
		return
	}
	o.dead = true
	if k.dead = append(k.dead, id); len(k.dead) > mostDead {
		k.dropOldest()
	}
}

func (k *kept) dropOldest() {
	k.drop(k.dead[0])
	k.dead = k.dead[1:]
}

// drop forgets an object.
func (k *kept) drop(id objectID) {
	for _, lines := range k.objects[id].lines {
		for _, l := range lines {
			k.bytes -= len(l.text) + perLine
		}
	}
	delete(k.objects, id)
	delete(k.counts, id)
}

// all returns the lines in their order, and a line of counts.
func (k *kept) all() [][]byte {
	var lines []keptLine
	for _, o := range k.objects {
		for _, l := range o.lines {
			lines = append(lines, l...)
		}
	}
	slices.SortFunc(lines, func(a, b keptLine) int { return int(a.order) - int(b.order) })
	texts := make([][]byte, 0, len(lines)+1)
	for _, l := range lines {
		texts = append(texts, l.text)
	}
	rows := [][]byte{}
	for _, row := range k.counts {
		rows = append(rows, row)
	}
	counts := append([]byte(`{"kind":"counts","rows":[`), bytes.Join(rows, []byte(","))...)
	counts = append(counts, `],"left":`...)
	return append(texts, append(strconv.AppendInt(counts, int64(k.refused), 10), '}'))
}
