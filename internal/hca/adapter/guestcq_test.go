package adapter_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestGuestResizeCQ moves a CQ with completions in it to another ring, as mlx5_ib's resize_cq does, and asks for
// its state.
func TestGuestResizeCQ(t *testing.T) {
	g, _ := guestPair(t)
	q := g.queue
	nop := newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate).sized()
	q.post(nop, nop, nop)
	state := func() (c prm.CQContext, consumer, producer uint64) {
		in := command(prm.CmdQueryCQ, 0, 16)
		prm.PutNumber(in, q.cq.number)
		out := g.command(in, 0x50)
		return prm.ParseCreateCQ(out), prm.Bits(out, 0x80+0x148, 24), prm.Bits(out, 0x80+0x168, 24)
	}
	waitFor := func(want uint64) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, _, n := state(); n == want {
				return
			}
		}
		t.Fatalf("the producer's index did not become %d", want)
	}
	waitFor(3)

	const entries = 256
	ring := g.pages(entries * q.cq.size)
	ring.put(0, bytes.Repeat([]byte{0xf1}, entries*q.cq.size))
	move := func(fields uint64) prm.CommandStatus {
		in := command(prm.CmdModifyCQ, prm.CQResize, 0x400)
		prm.CQContext{LogSize: 8, CQE128: q.cq.size == 128, PageOffset: guestPageOffset}.Put(in)
		prm.PutNumber(in, q.cq.number)
		prm.SetBits(in, 0x60, 32, fields)
		out, _ := g.ctx.Exec(0, ring.list(in), 16)
		return prm.CommandStatus(out[0])
	}
	if status := move(prm.CQLogSize); status != prm.CmdBadParam {
		t.Errorf("a size without pages: status %#x", status)
	}
	if status := move(prm.CQLogSize | prm.CQPageOffset | prm.CQPageSize); status != prm.CmdOK {
		t.Fatalf("status %#x", status)
	}
	for i := range 3 {
		q.done(prm.CQERequester)
		if _, n, _ := state(); n != uint64(i+1) {
			t.Errorf("the consumer's index is %d after %d completions", n, i+1)
		}
	}
	q.done(prm.CQEResize)
	q.post(nop)
	waitFor(5)
	if e := ring.get(5*q.cq.size-64, 64); prm.CQEOpcode(e[63]>>4) != prm.CQERequester || e[63]&1 != 0 {
		t.Errorf("the entry after the move: % x", e)
	}
	if c, _, _ := state(); c.LogSize != 8 || c.CQE128 != (q.cq.size == 128) || c.EQN != testEQ || c.UAR != testUAR {
		t.Errorf("%+v", c)
	}
}
