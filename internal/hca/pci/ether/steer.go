package ether

import (
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
)

// MatchSize is the size of the outer headers' part of a match parameter.
const MatchSize = 64

// Match holds header fields in the format of match parameters: a mask, a value, or the
// fields of a frame.
type Match [MatchSize]byte

// Limits of steering.
const (
	maxTables  = 1 << 10
	maxGroups  = 1 << 12 // of all tables
	maxEntries = 1 << 16 // of a table, and of all tables
	maxHops    = 4096    // tables that a frame walks through
	maxCompare = 1 << 17 // entries that a frame is compared with
	maxTargets = 64      // of an entry, and TIRs that get a frame
)

// Actions of an entry.
const (
	ActionAllow   = 1 << 0
	ActionDrop    = 1 << 1
	ActionForward = 1 << 2
	actionsKnown  = ActionAllow | ActionDrop | ActionForward
)

// Target is where an entry forwards frames: a table or a TIR.
type Target struct {
	Table bool
	ID    uint32
}

// Table is a flow table.
type Table struct {
	Level   uint8
	Size    uint32 // entries
	Miss    uint32 // table for frames that no entry matches; 0: none
	groups  map[uint32]*Group
	entries []*Entry      // by index
	numbers *number.Range // of the groups
}

// Group is entries of a table with one mask.
type Group struct {
	First, Last uint32 // indexes of its entries
	Mask        Match
	words       []int // offsets of the words of Mask that are not 0
}

// Entry is an entry of a flow table.
type Entry struct {
	Index   uint32
	Group   uint32
	Action  uint16
	Value   Match
	Targets []Target
	group   *Group
}

// steering is the flow tables.
type steering struct {
	root    uint32 // 0: none; frames are dropped
	numbers number.Range
	tables  map[uint32]*Table

	groups, entries int // of all tables
}

// CreateTable makes a table and returns its number.
func (p *Port) CreateTable(t Table) (uint32, error) {
	const op = "CREATE_FLOW_TABLE"
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.steer
	switch {
	case len(s.tables) >= maxTables:
		return 0, failure.New(op, syscall.ENOMEM, "there are %d flow tables already", maxTables)
	case t.Size > maxEntries:
		return 0, failure.New(op, syscall.EINVAL, "%d entries: at most %d", t.Size, maxEntries)
	case t.Miss != 0 && s.tables[t.Miss] == nil:
		return 0, failure.New(op, syscall.ENOENT, "flow table %#x does not exist", t.Miss)
	}
	t.groups, t.numbers = make(map[uint32]*Group), new(number.Range)
	n := number.Next(&s.numbers, s.tables)
	s.tables[n] = &t
	return n, nil
}

func (s *steering) table(op string, id uint32) (*Table, error) {
	return find(op, "flow table", s.tables, id)
}

// DestroyTable destroys a table. Entries that forward to it drop frames from then on.
func (p *Port) DestroyTable(id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table("DESTROY_FLOW_TABLE", id)
	if err == nil {
		p.steer.groups -= len(t.groups)
		p.steer.entries -= len(t.entries)
		delete(p.steer.tables, id)
	}
	return err
}

// SetMiss sets the table for frames that no entry of a table matches; 0: none.
func (p *Port) SetMiss(id, miss uint32) error {
	const op = "MODIFY_FLOW_TABLE"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table(op, id)
	if err != nil {
		return err
	}
	if miss != 0 {
		if _, err := p.steer.table(op, miss); err != nil {
			return err
		}
	}
	t.Miss = miss
	return nil
}

// SetRoot sets the table that received frames begin at.
func (p *Port) SetRoot(id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.steer.table("SET_FLOW_TABLE_ROOT", id)
	if err == nil {
		p.steer.root = id
	}
	return err
}

// CreateGroup makes a group of a table and returns its number.
func (p *Port) CreateGroup(table uint32, g Group) (uint32, error) {
	const op = "CREATE_FLOW_GROUP"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table(op, table)
	switch {
	case err != nil:
		return 0, err
	case g.First > g.Last || g.Last >= t.Size:
		return 0, failure.New(op, syscall.EINVAL, "entries %d to %d: the table has %d", g.First, g.Last, t.Size)
	case p.steer.groups >= maxGroups:
		return 0, failure.New(op, syscall.ENOMEM, "there are %d flow groups already", maxGroups)
	}
	for _, other := range t.groups {
		if g.First <= other.Last && other.First <= g.Last {
			return 0, failure.New(op, syscall.EINVAL, "entries %d to %d overlap the group of entries %d to %d", g.First, g.Last, other.First, other.Last)
		}
	}
	for off := 0; off < MatchSize; off += 4 {
		if be.Uint32(g.Mask[off:]) != 0 {
			g.words = append(g.words, off)
		}
	}
	n := number.Next(t.numbers, t.groups)
	t.groups[n] = &g
	p.steer.groups++
	return n, nil
}

// DestroyGroup destroys a group with its entries.
func (p *Port) DestroyGroup(table, id uint32) error {
	const op = "DESTROY_FLOW_GROUP"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table(op, table)
	if err != nil {
		return err
	}
	g, err := find(op, "flow group", t.groups, id)
	if err != nil {
		return err
	}
	delete(t.groups, id)
	before := len(t.entries)
	t.entries = slices.DeleteFunc(t.entries, func(e *Entry) bool { return e.group == g })
	p.steer.groups--
	p.steer.entries -= before - len(t.entries)
	return nil
}

func (t *Table) find(index uint32) (int, bool) {
	return slices.BinarySearchFunc(t.entries, index, func(e *Entry, index uint32) int { return int(e.Index) - int(index) })
}

// SetEntry makes an entry of a table, or replaces it.
func (p *Port) SetEntry(table uint32, e Entry) error {
	const op = "SET_FLOW_TABLE_ENTRY"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table(op, table)
	if err != nil {
		return err
	}
	e.group, err = find(op, "flow group", t.groups, e.Group)
	switch {
	case err != nil:
		return err
	case e.Index < e.group.First || e.Index > e.group.Last:
		return failure.New(op, syscall.EINVAL, "entry %d: the group has entries %d to %d", e.Index, e.group.First, e.group.Last)
	case e.Action&^actionsKnown != 0:
		return failure.New(op, syscall.EOPNOTSUPP, "action %#x: %#x is not supported", e.Action, e.Action&^actionsKnown)
	case e.Action&ActionForward != 0 && len(e.Targets) == 0 || len(e.Targets) > maxTargets:
		return failure.New(op, syscall.EINVAL, "%d targets: must be 1 to %d", len(e.Targets), maxTargets)
	}
	for _, d := range e.Targets {
		// A table forwards only to tables of higher levels, so that every walk ends.
		if to := p.steer.tables[d.ID]; d.Table && (to == nil || to.Level <= t.Level) {
			return failure.New(op, syscall.EINVAL, "target table %#x: must be one of a level above %d", d.ID, t.Level)
		} else if !d.Table {
			if _, err := find(op, "TIR", p.tirs, d.ID); err != nil {
				return err
			}
		}
	}
	for i := range e.Value {
		e.Value[i] &= e.group.Mask[i]
	}
	i, found := t.find(e.Index)
	switch {
	case found:
		t.entries[i] = &e
	case p.steer.entries >= maxEntries:
		return failure.New(op, syscall.ENOMEM, "there are %d entries of flow tables already", maxEntries)
	default:
		t.entries = slices.Insert(t.entries, i, &e)
		p.steer.entries++
	}
	return nil
}

// DeleteEntry deletes an entry of a table.
func (p *Port) DeleteEntry(table, index uint32) error {
	const op = "DELETE_FLOW_TABLE_ENTRY"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.steer.table(op, table)
	if err != nil {
		return err
	}
	i, found := t.find(index)
	if !found {
		return failure.New(op, syscall.ENOENT, "entry %d does not exist", index)
	}
	t.entries = slices.Delete(t.entries, i, i+1)
	p.steer.entries--
	return nil
}

// walk calls deliver for each TIR that gets a frame with these fields. Tables that a driver makes
// have tens of entries. The work for one frame is bounded, because a hostile driver can make
// tables that are long, name the same TIRs many times, or miss in a circle.
func (s *steering) walk(fields *Match, deliver func(tir uint32)) {
	queue := [maxTargets]uint32{s.root}
	n, compared, delivered := 1, 0, 0
	for hops := 0; n > 0 && hops < maxHops && compared < maxCompare; hops++ {
		n--
		t := s.tables[queue[n]]
		if t == nil {
			continue
		}
		e, tried := t.match(fields)
		compared += tried
		if e == nil {
			if t.Miss != 0 {
				queue[n] = t.Miss
				n++
			}
			continue
		}
		if e.Action&ActionDrop != 0 {
			continue
		}
		for _, d := range e.Targets {
			switch {
			case d.Table && n < len(queue):
				queue[n] = d.ID
				n++
			case !d.Table && delivered < maxTargets:
				deliver(d.ID)
				delivered++
			}
		}
	}
}

// match returns the first entry that matches, or nil, and the number of entries that it looked at.
func (t *Table) match(fields *Match) (e *Entry, tried int) {
next:
	for i, e := range t.entries {
		for _, off := range e.group.words {
			if be.Uint32(fields[off:])&be.Uint32(e.group.Mask[off:]) != be.Uint32(e.Value[off:]) {
				continue next
			}
		}
		return e, i + 1
	}
	return nil, len(t.entries)
}

// fieldsOf returns the fields of a frame.
func fieldsOf(b []byte, l *layers) (m Match) {
	copy(m[0:6], b[6:12]) // source
	be.PutUint16(m[6:], l.typ)
	copy(m[8:14], b[0:6]) // destination
	if l.cvlan || l.svlan {
		be.PutUint16(m[14:], l.vlan)
	}
	if l.cvlan {
		m[18] |= 1 << 7
	}
	if l.svlan {
		m[18] |= 1 << 6
	}
	if l.l3 == 0 {
		return m
	}
	m[16] = l.proto
	h := b[l.l3:]
	tos := h[1]
	version := uint8(4)
	if l.v6 {
		version, tos = 6, h[0]<<4|h[1]>>4
		m[27] = h[7]
		copy(m[32:48], h[8:24])
		copy(m[48:64], h[24:40])
	} else {
		m[26] = h[0] & 0xf // header length
		m[27] = h[8]       // time to live
		copy(m[44:48], h[12:16])
		copy(m[60:64], h[16:20])
	}
	m[17] = tos
	if l.frag {
		m[18] |= 1 << 5
	}
	m[18] |= version << 1
	if l.l4 == 0 {
		return m
	}
	p := b[l.l4:]
	if l.proto == protoUDP {
		copy(m[28:32], p[:4])
		return m
	}
	m[18] |= p[12] & 1 // flags of 9 bits
	m[19] = p[13]
	copy(m[20:24], p[:4])
	return m
}
