package ether

import "testing"

// FuzzSteering makes flow tables, groups and entries from arbitrary bytes and walks through them.
// Each walk ends, each TIR is one that exists, and a frame goes to a bounded number of them. The
// counts of groups and entries are those of the tables.
func FuzzSteering(f *testing.F) {
	frame, _ := tcpFrame(false, false, []byte("payload"))
	f.Add([]byte{0, 1, 0, 2, 1, 1, 0, 2, 1, 1, 5, 1}, frame)
	f.Add([]byte{0, 1, 0, 2, 4, 0x12, 4, 0x21, 5, 1}, frame)                      // two tables that miss in a circle
	f.Add([]byte{0, 1, 0, 2, 1, 1, 2, 0x10, 3, 2, 1, 2, 2, 0x20, 5, 1}, frame)    // entries
	f.Add([]byte{0, 1, 1, 1, 2, 0x10, 5, 1, 6, 0x10, 2, 0x10, 7, 1, 8, 1}, frame) // and their end
	f.Fuzz(func(t *testing.T, ops, frame []byte) {
		if len(frame) < headerEthernet || len(ops) > 4096 {
			return
		}
		r := newRig(t)
		p := r.port
		tir, err := p.CreateTIR(TIR{Direct: true, RQ: r.rq})
		if err != nil {
			t.Fatal(err)
		}
		l := parse(frame)
		fields := fieldsOf(frame, &l)
		for ; len(ops) >= 2; ops = ops[2:] {
			a, b := uint32(ops[1]>>4), uint32(ops[1]&15)
			switch ops[0] % 9 {
			case 0:
				p.CreateTable(Table{Level: uint8(b), Size: 16, Miss: a})
			case 1:
				g := Group{First: a, Last: a + b}
				copy(g.Mask[4*b:], ops[2:])
				p.CreateGroup(b, g)
			case 2, 3:
				e := Entry{Index: b, Group: 1, Action: ActionForward, Targets: []Target{{ID: tir}}}
				for range ops[0] % 64 {
					e.Targets = append(e.Targets, Target{Table: true, ID: b}, Target{ID: tir})
				}
				e.Targets = e.Targets[:min(len(e.Targets), maxTargets)]
				copy(e.Value[:], fields[:])
				p.SetEntry(a, e)
			case 4:
				p.SetMiss(a, b)
			case 5:
				p.SetRoot(b)
			case 6:
				p.DeleteEntry(a, b)
			case 7:
				p.DestroyGroup(b, 1+a)
			case 8:
				p.DestroyTable(b)
			}
		}
		n := 0
		p.mu.Lock()
		p.steer.walk(&fields, func(id uint32) {
			if n++; id != tir {
				t.Errorf("a frame for TIR %#x, which does not exist", id)
			}
		})
		groups, entries := 0, 0
		for _, table := range p.steer.tables {
			groups, entries = groups+len(table.groups), entries+len(table.entries)
		}
		if n > maxTargets || groups != p.steer.groups || entries != p.steer.entries {
			t.Errorf("%d TIRs; %d groups are counted and %d exist; %d entries are counted and %d exist", n, p.steer.groups, groups, p.steer.entries, entries)
		}
		p.mu.Unlock()
		p.Receive(frame)
	})
}
