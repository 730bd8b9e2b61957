//go:build linux

package assist

import (
	"fmt"
	"testing"
)

// The protocol of the page as a machine whose every step is one access to memory or one system call. A program
// rings a few doorbells and polls for the answers; a helper and the device's own thread do the work.
type machine struct {
	// memory
	rung, seen uint8 // doorbells that the program has rung, and that the device has found
	polls      bool
	line       uint8 // off or dozing

	// the program: see softmkey-run.c
	at     uint8 // its next step
	posted bool
	ring   uint8 // doorbells that it has still to ring

	// the helper: see helpers.run
	helper  uint8
	waiting bool // it is in FUTEX_WAIT
	working bool
	pauses  uint8

	// the device's own thread: see helpers.serve
	own      uint8
	switches uint8
}

// The steps of the program.
const (
	programRings = iota
	programPolls // no completion: if something is posted, it kicks
	programReadsPolls
	programReadsLine
	programWakes
	programDone
)

// The steps of the helper.
const (
	helperDozes  = iota
	helperBegins // it says that it works
	helperWorks  // it looks in a loop
	helperClears // it says that it works no more
	helperLooks
	helperSleeps
	helperWaits
	helperPauses
)

// The steps of the own thread.
const (
	ownNaps   = iota // helpers serve; the nap's end is left out: without it nothing may be lost
	ownPolls         // it looks in a loop
	ownClears        // it says that it polls no more
	ownLooks         // and looks once
)

// next returns the states after one step of one thread. The time of a helper's pause, and the own thread's
// decisions, may come at any time.
func (m machine) next() (all []machine) {
	program := m
	switch m.at {
	case programRings:
		program.rung++
		program.ring--
		program.posted = true
		program.at = programPolls
		all = append(all, program)
	case programPolls:
		switch {
		case m.seen == m.rung && m.ring == 0:
			program.at = programDone
		case m.seen == m.rung:
			program.at = programRings
		case m.posted:
			program.at = programReadsPolls
		default:
			program.at = programPolls // it spins
		}
		all = append(all, program)
		if m.ring > 0 { // it may ring again without waiting
			program.at = programRings
			all = append(all, program)
		}
	case programReadsPolls:
		program.at = programReadsLine
		if m.polls || m.working {
			program.posted, program.at = false, programPolls
		}
		all = append(all, program)
	case programReadsLine:
		program.at = programWakes
		if m.line != dozing {
			program.posted, program.at = false, programPolls
		}
		all = append(all, program)
	case programWakes:
		if m.waiting {
			program.waiting, program.posted = false, false
		}
		program.at = programPolls
		all = append(all, program)
	}

	helper := m
	switch m.helper {
	case helperDozes:
		helper.line, helper.helper = dozing, helperBegins
		all = append(all, helper)
	case helperBegins:
		helper.working, helper.helper = true, helperWorks
		all = append(all, helper)
	case helperWorks:
		helper.seen = m.rung
		all = append(all, helper)
		helper = m
		helper.helper = helperClears
		all = append(all, helper)
	case helperClears:
		helper.working, helper.helper = false, helperLooks
		all = append(all, helper)
	case helperLooks:
		helper.seen, helper.helper = m.rung, helperSleeps
		all = append(all, helper)
	case helperSleeps: // FUTEX_WAIT compares and sleeps in one step
		helper.helper, helper.waiting = helperWaits, true
		if m.line != dozing {
			helper.helper, helper.waiting = helperDozes, false
		}
		all = append(all, helper)
	case helperWaits:
		if !m.waiting {
			helper.helper = helperDozes
			all = append(all, helper)
			if m.pauses > 0 {
				helper.line, helper.helper = off, helperPauses
				helper.pauses--
				all = append(all, helper)
			}
		}
	case helperPauses:
		helper.helper = helperDozes
		all = append(all, helper)
	}

	own := m
	switch m.own {
	case ownNaps:
		if m.switches > 0 {
			own.switches--
			own.polls, own.own = true, ownPolls
			all = append(all, own)
		}
	case ownPolls:
		own.seen = m.rung
		all = append(all, own)
		own = m
		own.own = ownClears
		all = append(all, own)
	case ownClears:
		own.polls, own.own = false, ownLooks
		all = append(all, own)
	case ownLooks:
		own.seen, own.own = m.rung, ownNaps
		all = append(all, own)
	}
	return all
}

// lost reports whether nobody is going to look for a doorbell that was rung.
func (m machine) lost() bool {
	kicks := m.posted || m.at == programReadsPolls || m.at == programReadsLine || m.at == programWakes || m.at == programRings
	return m.seen != m.rung && !kicks && m.waiting && m.own == ownNaps
}

// In all orders of the steps no doorbell is lost, though the device's own thread never looks by itself.
func TestProtocol(t *testing.T) {
	begin := machine{ring: 3, pauses: 2, switches: 2}
	from := map[machine]machine{begin: begin}
	todo := []machine{begin}
	done := 0
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if m.lost() {
			way := fmt.Sprintf("%+v", m)
			for from[m] != m {
				m = from[m]
				way = fmt.Sprintf("%+v\n%s", m, way)
			}
			t.Fatalf("a doorbell is lost:\n%s", way)
		}
		if m.at == programDone {
			done++
		}
		for _, n := range m.next() {
			if _, known := from[n]; !known {
				from[n] = m
				todo = append(todo, n)
			}
		}
	}
	if done == 0 {
		t.Error("the program never ends")
	}
	t.Logf("%d states", len(from))
}
