package filecopy

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/device/devicetest"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// attacker is one side of a copy, connected, which does only what the test tells it to.
type attacker struct {
	*end
	t *testing.T
}

// say sends a control message.
func (a attacker) say(m message) { a.raw(m.append(nil)) }

// taken reports on the data connection that a chunk was read.
func (a attacker) taken(chunk uint64) {
	a.t.Helper()
	a.post(a.sendMessage(a.bulk.Start(), &message{kind: kindTaken, chunk: chunk}))
}

// raw sends bytes in place of a control message.
func (a attacker) raw(b []byte) {
	a.t.Helper()
	a.post(a.control.Start().Send().Inline(b))
}

// post posts a chain of work requests.
func (a attacker) post(c verbs.Chain) {
	a.t.Helper()
	if err := c.Complete(); err != nil {
		a.t.Error(err)
	}
}

// hear returns the victim's next message.
func (a attacker) hear() message {
	a.t.Helper()
	var wc [1]rdma.WC
	for {
		if _, err := a.cq.Wait(timeout(a.t), wc[:]); err != nil {
			a.t.Fatal(err)
		}
		if wc[0].ID&^idMask == idInbox {
			m, err := parseMessage(a.inbox.Bytes()[int(wc[0].ID&idMask)*maxMessage:][:wc[0].ByteLen])
			fatal.If(a.t, err)
			return m
		}
	}
}

// write sends a chunk of n wire bytes with WRITE with immediate.
func (a attacker) write(to message, n int, imm uint32) {
	a.t.Helper()
	a.post(a.bulk.Start().WriteImm(to.rkey, to.addr, imm).SGE(a.memory.SGE(0, n)))
}

// attack runs a victim on the other side and returns its error.
func attack(t *testing.T, terms keyplan.Terms, victimSends bool, f func(a attacker)) error {
	t.Helper()
	p, err := keyplan.New(terms, 16<<10)
	fatal.If(t, err)
	da, db := devicetest.Pair(t)
	var victim Peer
	var own keyplan.Side
	if victimSends {
		victim, err = NewSender(da, p, SenderConfig{Src: bytes.NewReader(random(7, 100_000)), Flip: -1})
		own = p.Sides()[1]
	} else {
		victim, err = NewReceiver(da, p, ReceiverConfig{Dst: io.Discard, Commit: func() error {
			t.Error("the victim took the file")
			return nil
		}})
		own = p.Sides()[0]
	}
	fatal.If(t, err)
	defer victim.Close()
	e, err := newEnd(db, p, own, SideConfig{}, rdma.RemoteRead|rdma.RemoteWrite)
	fatal.If(t, err)
	defer e.close()
	fatal.If(t, errors.Join(victim.Connect(e.Endpoints()), e.Connect(victim.Endpoints())))
	result := make(chan error, 1)
	go func() {
		_, err := victim.Run(timeout(t), nil)
		result <- err
	}()
	f(attacker{e, t})
	return <-result
}

// hostile is an attack, and what the error of its victim has.
type hostile struct {
	name  string
	terms keyplan.Terms
	f     func(a attacker)
	want  string
}

func attackAll(t *testing.T, victimSends bool, attacks []hostile) {
	t.Helper()
	for _, h := range attacks {
		if err := attack(t, h.terms, victimSends, h.f); err == nil || !strings.Contains(err.Error(), h.want) {
			t.Errorf("%s: %v, want %q", h.name, err, h.want)
		}
	}
}

func TestHostileSender(t *testing.T) {
	chunk := func(a attacker) int { return a.plan.ChunkWire() }
	attackAll(t, false, []hostile{
		{"no message", keyplan.Terms{}, func(a attacker) { a.raw(nil) }, "malformed"},
		{"an unknown message", keyplan.Terms{}, func(a attacker) { a.raw(make([]byte, 24)) }, "malformed"},
		{"a message of a later version", keyplan.Terms{}, func(a attacker) { a.raw(bytes.Repeat([]byte{99}, 24)) }, "malformed"},
		{"a message that is longer than any", keyplan.Terms{}, func(a attacker) { a.raw(make([]byte, maxMessage+1)) }, "control connection"},
		{"a receiver's message", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindCredit}) }, "does not fit"},
		{"an offer where none belongs", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindReady, length: 100}) }, "does not fit"},
		{"BYE at once", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindBye}) }, "does not fit"},
		{"more chunks than came", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindDone, chunk: 5, length: 5 << 14}) }, "have arrived"},
		{"another immediate", keyplan.Terms{}, func(a attacker) { a.write(a.hear(), chunk(a), 7) }, "something other"},
		{"nothing as a chunk", keyplan.Terms{}, func(a attacker) { a.write(a.hear(), 0, 0) }, "0 bytes of data"},
		{"chunks behind the last", keyplan.Terms{}, func(a attacker) {
			a.write(a.hear(), 100, 0)
			a.write(a.hear(), chunk(a), 1)
		}, "only the last may have less"},
		{"a chunk that ends in a field", keyplan.Terms{Wire: "t10dif"}, func(a attacker) { a.write(a.hear(), 516, 0) }, "truncated"},
		{"more than a slot holds", keyplan.Terms{Wire: "t10dif"}, func(a attacker) { a.write(a.hear(), chunk(a)+1, 0) }, "data connection"},
		{"a stolen key", keyplan.Terms{}, func(a attacker) { a.write(message{rkey: a.hear().rkey ^ 0x5500, addr: 0}, 10, 0) }, "data connection"},
		{"the slot before the first", keyplan.Terms{}, func(a attacker) {
			m := a.hear()
			m.addr -= 100
			a.write(m, 200, 0)
		}, "data connection"},
		{"a READ of the victim's memory", keyplan.Terms{}, func(a attacker) {
			m := a.hear()
			a.post(a.bulk.Start().Read(m.rkey, m.addr).SGE(a.memory.SGE(0, 100)))
		}, "data connection"},
		{"a SEND instead of a WRITE", keyplan.Terms{}, func(a attacker) {
			a.hear()
			a.post(a.bulk.Start().SendImm(0))
		}, "something other"},
		{"a SEND that is too long", keyplan.Terms{Op: keyplan.Send}, func(a attacker) {
			a.hear()
			a.post(a.bulk.Start().Send().SGE(a.memory.SGE(0, chunk(a)+1)))
		}, "data connection"},
		{"a WRITE instead of a SEND", keyplan.Terms{Op: keyplan.Send}, func(a attacker) {
			a.write(a.hear(), 100, 0)
		}, "data connection"},
		{"offers out of order", keyplan.Terms{Op: keyplan.Read}, func(a attacker) { a.say(message{kind: kindReady, chunk: 1, length: 100}) }, "does not fit"},
		{"an offer that is too long", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			a.say(message{kind: kindReady, length: uint64(chunk(a)) + 1})
		}, "does not fit"},
		{"an offer of nothing", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			a.say(message{kind: kindReady, rkey: a.memory.RKey(), addr: a.memory.Addr()})
		}, "0 bytes of data"},
		{"an offer of memory that is not there", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			a.say(message{kind: kindReady, rkey: 0x1200, addr: 1 << 60, length: 100})
		}, "remote access error"},
		{"more offers than slots", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			for k := range 3 * a.plan.Slots {
				a.say(message{kind: kindReady, rkey: a.memory.RKey(), addr: a.memory.Addr(), length: uint64(chunk(a)), chunk: uint64(k + k/30)})
			}
		}, "does not fit"},
		{"STOP with a text that a terminal obeys", keyplan.Terms{}, func(a attacker) {
			a.say(message{kind: kindStop, reason: reasonFailed, text: "\x1b[2J\x1b[31mgotcha"})
		}, `the other side stopped: \x1b[2J\x1b[31mgotcha`},
		{"STOP with a bad block", keyplan.Terms{}, func(a attacker) {
			a.say(message{kind: kindStop, reason: reasonBad, bad: someBad})
		}, "the sender's key, wire domain: bad reference tag"},
		{"STOP of a user", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindStop, reason: reasonInterrupted}) }, "interrupted"},
		{"a bad block in DONE", keyplan.Terms{}, func(a attacker) {
			a.say(message{kind: kindDone, badChunks: 1, bad: someBad})
		}, "the sender's key"},
	})
}

func TestHostileReceiver(t *testing.T) {
	attackAll(t, true, []hostile{
		{"a sender's message", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindDone}) }, "does not fit"},
		{"grants out of order", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindCredit, chunk: 1}) }, "does not fit"},
		{"a grant twice", keyplan.Terms{}, func(a attacker) {
			for range 2 {
				a.say(message{kind: kindCredit, rkey: a.memory.RKey(), addr: a.memory.Addr()})
			}
		}, "does not fit"},
		{"a grant of memory that is not there", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindCredit, rkey: 0x1200}) }, "remote access error"},
		{"grants without end", keyplan.Terms{Op: keyplan.Send}, func(a attacker) {
			for k := range 3 * a.plan.Slots {
				a.say(message{kind: kindCredit, chunk: uint64(k)})
			}
		}, "does not fit"},
		{"chunks taken that were never offered", keyplan.Terms{Op: keyplan.Read}, func(a attacker) { a.taken(40) }, "does not fit"},
		{"a grant where none belongs", keyplan.Terms{Op: keyplan.Read}, func(a attacker) { a.say(message{kind: kindCredit}) }, "does not fit"},
		{"RESULT before the end", keyplan.Terms{}, func(a attacker) { a.say(message{kind: kindResult, length: 100_000}) }, "does not fit"},
		{"RESULT of another length", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			for k := 0; ; k++ {
				m := a.hear()
				if m.kind == kindDone {
					break
				}
				a.taken(uint64(k))
			}
			a.say(message{kind: kindResult, length: 99_999})
		}, "does not fit"},
		{"a WRITE to the victim's memory", keyplan.Terms{Op: keyplan.Read}, func(a attacker) {
			m := a.hear()
			a.post(a.bulk.Start().Write(m.rkey, m.addr).SGE(a.memory.SGE(0, 100)))
		}, "data connection: QP request error"},
		{"STOP because the disk is full", keyplan.Terms{}, func(a attacker) {
			a.say(message{kind: kindStop, reason: reasonFailed, text: "no space left on device"})
		}, "the other side stopped: no space left on device"},
	})
}

// TestVanishedPeer checks that a copy ends when the other side disappears.
func TestVanishedPeer(t *testing.T) {
	for _, sends := range []bool{false, true} {
		a, b := devicetest.Pair(t)
		p, err := keyplan.New(keyplan.Terms{}, 0)
		fatal.If(t, err)
		s, err := NewSender(a, p, SenderConfig{Src: bytes.NewReader(nil), Flip: -1})
		fatal.If(t, err)
		r, err := NewReceiver(b, p, ReceiverConfig{Dst: io.Discard})
		fatal.If(t, err)
		fatal.If(t, errors.Join(s.Connect(r.Endpoints()), r.Connect(s.Endpoints())))
		gone := make(chan struct{})
		close(gone)
		var victim, other Peer = r, s
		if sends {
			victim, other = s, r
		}
		if _, err := victim.Run(timeout(t), gone); !errors.Is(err, errGone) {
			t.Errorf("sender %v: %v", sends, err)
		}
		victim.Close()
		other.Close()
	}
}
