package pci

import (
	"os"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestPromises holds what is announced against what is implemented. Every capability that is announced is in
// the table, and every capability in the table is announced; each command that follows from one is
// implemented, and each command of this package follows from one.
func TestPromises(t *testing.T) {
	d := booted(t, Config{})
	// A command without a handler here is one of package adapter, which answers "bad operation" if it has none.
	announced, wanted := map[string]bool{}, map[prm.Command]bool{}
	for _, fields := range capabilities {
		for _, c := range fields {
			announced[c.name] = c.value != 0
			commands, listed := promises[c.name]
			if !listed {
				t.Errorf("%s is announced, and promises does not say what follows from it", c.name)
			}
			for _, op := range commands {
				wanted[op] = true
			}
		}
	}
	for name := range promises {
		if !announced[name] {
			t.Errorf("%s is in promises, and is not announced", name)
		}
	}
	for _, op := range unconditional {
		wanted[op] = true
	}
	for op := range wanted {
		if handlers[op] != nil {
			continue
		}
		if _, out := d.exec(build(op, 0, 0x40), 0x40); prm.CommandStatus(out[0]) == prm.CmdBadOp {
			t.Errorf("%v follows from a capability, and is not implemented", op)
		}
	}
	for op := range handlers {
		if !wanted[op] {
			t.Errorf("%v is implemented, and no capability makes a driver send it", op)
		}
	}
}

// TestAbsences checks that what is absent is not announced, and that the page about guests says so.
func TestAbsences(t *testing.T) {
	page, err := os.ReadFile("../../../docs/pci.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	d := booted(t, Config{})
	for _, a := range absences {
		_, out := d.exec(build(prm.CmdQueryHCACap, a.group<<1, 16), 0x10+capSize)
		if prm.Bits(out[0x10:], a.off, 1) != 0 {
			t.Errorf("%s is announced", a.name)
		}
		if !strings.Contains(text, a.doc) {
			t.Errorf("docs/pci.md does not say %q about %s", a.doc, a.name)
		}
	}
}
