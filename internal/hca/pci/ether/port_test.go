package ether

import (
	"bytes"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// fakeCQ keeps the completions.
type fakeCQ struct{ done chan []byte }

func (q *fakeCQ) Complete(e Completion) bool {
	b := make([]byte, prm.CQESize)
	e.Put(b)
	b[prm.CQESize-1] = e.OpOwn(0)
	q.done <- b
	return true
}

// next returns the next completion.
func (q *fakeCQ) next(t *testing.T) []byte {
	t.Helper()
	select {
	case b := <-q.done:
		return b
	case <-time.After(time.Minute):
		t.Fatal("no completion")
		return nil
	}
}

// rig is a port with a send queue and a receive queue of 4 entries.
type rig struct {
	t      *testing.T
	port   *Port
	mem    guestmem.Map
	cq     *fakeCQ
	sent   chan []byte
	sq, rq uint32
	posted uint16
}

// Places in the rig's memory.
const (
	sqRing   = 0x1000
	rqRing   = 0x2000
	records  = 0x3000
	buffers  = 0x4000
	testLKey = 0x700
)

func newRig(t *testing.T) *rig { return newFlushRig(t, true) }

// newFlushRig is newRig with or without flush_in_error_en.
func newFlushRig(t *testing.T, flush bool) *rig {
	r := &rig{t: t, cq: &fakeCQ{make(chan []byte, 64)}, sent: make(chan []byte, 64)}
	fatal.If(t, r.mem.Add(guestmem.Range{Size: 1 << 20, View: make([]byte, 1<<20)}))
	r.port = New(Config{
		Memory: &r.mem, Clock: func() uint64 { return 1 }, Transmit: func(b []byte) { r.sent <- bytes.Clone(b) },
		Resolve: func(lkey uint32, addr, n uint64) (uint64, error) {
			if lkey != testLKey {
				return 0, syscall.EACCES
			}
			return addr, nil
		},
	})
	t.Cleanup(r.port.Close)
	var err error
	if r.sq, err = r.port.CreateSQ(Queue{Ring: Ring{Pages: []uint64{sqRing}, Shift: 12, LogStride: 6, LogSize: 4, Record: records}, CQ: r.cq, Flush: flush}); err != nil {
		t.Fatal(err)
	}
	if r.rq, err = r.port.CreateRQ(Queue{Ring: Ring{Pages: []uint64{rqRing}, Shift: 12, LogStride: 5, LogSize: 2, Record: records + 64}, CQ: r.cq, Flush: flush}); err != nil {
		t.Fatal(err)
	}
	fatal.If(t, errors.Join(r.port.ModifySQ(r.sq, StateReset, StateReady), r.port.ModifyRQ(r.rq, StateReset, StateReady)))
	return r
}

func (r *rig) put(addr uint64, b []byte) {
	r.t.Helper()
	fatal.If(r.t, r.mem.Write(addr, b))
}

// post posts a request with headers and one data segment, and rings.
func (r *rig) post(csum byte, headers []byte, addr uint64, n int, lkey uint32) {
	b := make([]byte, 32, 256)
	be.PutUint32(b, uint32(r.posted)<<8|uint32(prm.OpSend))
	b[11] = prm.FlagCQUpdate
	b[16+4] = csum
	be.PutUint16(b[16+12:], uint16(len(headers)))
	b = append(b[:16+14], headers...)
	for len(b) < 32 || len(b)%16 != 0 {
		b = append(b, 0)
	}
	b = be.AppendUint64(be.AppendUint32(be.AppendUint32(b, uint32(n)), lkey), addr)
	be.PutUint32(b[4:], r.sq<<8|uint32(len(b)/16))
	for at := 0; at < len(b); at += prm.BlockSize {
		r.put(sqRing+uint64(r.posted&15)*prm.BlockSize, b[at:min(len(b), at+prm.BlockSize)])
		r.posted++
	}
	var count [4]byte
	be.PutUint32(count[:], uint32(r.posted))
	r.put(records+4, count[:])
	r.port.Ring(r.sq)
}

// receive posts a buffer of n bytes, as Linux does it.
func (r *rig) receive(index, n int) {
	e := be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, uint32(n)|prm.StartPadding), testLKey), buffers+uint64(index)*0x1000)
	r.entry(index, be.AppendUint64(be.AppendUint32(be.AppendUint32(e, 0), prm.InvalidLKey), 0))
}

// entry posts an entry of the receive queue.
func (r *rig) entry(index int, e []byte) {
	r.put(rqRing+uint64(index&3)*32, e)
	var count [4]byte
	be.PutUint32(count[:], uint32(index+1))
	r.put(records+64, count[:])
}

// steer makes frames for the MAC address of echo go to the receive queue, through two tables.
func (r *rig) steer() {
	r.t.Helper()
	must := func(n uint32, err error) uint32 {
		r.t.Helper()
		fatal.If(r.t, err)
		return n
	}
	rqt := must(r.port.CreateRQT(4, []uint32{r.rq}))
	tir := must(r.port.CreateTIR(TIR{RQT: rqt, Hash: HashToeplitz, Fields: hashSrcIP | hashDstIP}))
	second := must(r.port.CreateTable(Table{Level: 2, Size: 4}))
	all := must(r.port.CreateGroup(second, Group{First: 0, Last: 3}))
	must(0, r.port.SetEntry(second, Entry{Index: 0, Group: all, Action: ActionForward, Targets: []Target{{ID: tir}}}))
	first := must(r.port.CreateTable(Table{Level: 1, Size: 4}))
	g := Group{First: 0, Last: 1}
	copy(g.Mask[8:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	group := must(r.port.CreateGroup(first, g))
	e := Entry{Index: 1, Group: group, Action: ActionForward, Targets: []Target{{Table: true, ID: second}}}
	copy(e.Value[8:], []byte{2, 0, 0, 0, 0, 1})
	must(0, r.port.SetEntry(first, e))
	must(0, r.port.SetRoot(first))
	if err := r.port.SetEntry(second, Entry{Index: 1, Group: all, Action: ActionForward, Targets: []Target{{Table: true, ID: first}}}); !errors.Is(err, syscall.EINVAL) {
		r.t.Errorf("a table of a lower level as target: %v, want EINVAL", err)
	}
}

func TestSend(t *testing.T) {
	r := newRig(t)
	frame, _ := tcpFrame(false, false, []byte("the payload"))
	want := bytes.Clone(frame)
	l := parse(want)
	fillChecksums(want, &l, true, true)
	for i := range 20 { // the ring has 16 blocks
		r.put(buffers, frame[30:])
		r.post(0xc0, frame[:30], buffers, len(frame)-30, testLKey)
		if got := <-r.sent; !bytes.Equal(got, want) {
			t.Fatalf("frame %d: %x, want %x", i, got, want)
		}
		if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != prm.CQERequester || cqe.QPN != r.sq || cqe.SendOp != prm.OpSend {
			t.Fatalf("frame %d: completion %+v", i, cqe)
		}
	}
	if n := Total(r.port.Counters().Sent); n.Frames != 20 {
		t.Errorf("%d frames counted", n.Frames)
	}
}

// TestFlush puts a send queue in error, by a request with a key that the port may not use and by MODIFY_SQ, and a receive
// queue by MODIFY_RQ. With flush_in_error_en, all that is posted to the queue, before and after, completes with a flush
// error, and nothing is sent. Without it, nothing more completes.
func TestFlush(t *testing.T) {
	r := newRig(t)
	flushed := func(opcode prm.CQEOpcode, counters ...uint16) {
		t.Helper()
		for _, want := range counters {
			if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != opcode || cqe.Syndrome != prm.SyndromeFlush || cqe.Counter != want {
				t.Errorf("completion %+v, want request %d flushed", cqe, want)
			}
		}
	}
	r.post(0, nil, buffers, 64, testLKey+1)
	r.post(0, make([]byte, 100), buffers, 64, testLKey) // three blocks
	r.post(0, nil, buffers, 64, testLKey)
	if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != prm.CQERequesterErr || cqe.Syndrome != prm.SyndromeLocalQPOp || cqe.Counter != 0 {
		t.Errorf("completion %+v", cqe)
	}
	flushed(prm.CQERequesterErr, 1, 4)
	r.post(0, nil, buffers, 64, testLKey)
	flushed(prm.CQERequesterErr, 5)
	if state, _ := r.port.SQState(r.sq); state != StateError || len(r.sent) != 0 {
		t.Errorf("state %d, %d frames sent", state, len(r.sent))
	}

	fatal.If(t, errors.Join(r.port.ModifySQ(r.sq, StateError, StateReset), r.port.ModifySQ(r.sq, StateReset, StateReady)))
	r.posted = 0
	for range cap(r.sent) {
		r.sent <- nil // the next frame waits
	}
	for range 3 {
		r.post(0, nil, buffers, 64, testLKey)
	}
	for Total(r.port.Counters().Sent).Frames == 0 {
		time.Sleep(time.Millisecond)
	}
	fatal.If(t, r.port.ModifySQ(r.sq, StateReady, StateError))
	for range cap(r.sent) + 1 {
		<-r.sent
	}
	if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != prm.CQERequester || cqe.Counter != 0 {
		t.Errorf("completion %+v of the frame that was on its way", cqe)
	}
	flushed(prm.CQERequesterErr, 1, 2)

	for i := range 3 {
		r.receive(i, 0x1000)
	}
	fatal.If(t, r.port.ModifyRQ(r.rq, StateReady, StateError))
	flushed(prm.CQERecvErr, 0, 1, 2)

	r = newFlushRig(t, false)
	r.post(0, nil, buffers, 64, testLKey+1)
	r.cq.next(t)
	r.post(0, nil, buffers, 64, testLKey)
	r.receive(0, 0x1000)
	fatal.If(t, r.port.ModifyRQ(r.rq, StateReady, StateError))
	r.port.mu.Lock()
	for r.port.sending {
		r.port.idle.Wait()
	}
	r.port.mu.Unlock()
	if n := len(r.cq.done); n != 0 {
		t.Errorf("%d completions of queues that do not flush", n)
	}
}

// TestResetWhileSending resets a send queue, or destroys it, while a frame of it is sent. The request
// of the queue's earlier life does not complete and does not count.
func TestResetWhileSending(t *testing.T) {
	for _, destroy := range []bool{false, true} {
		r := newRig(t)
		for range cap(r.sent) {
			r.sent <- nil // the next frame waits
		}
		r.put(buffers, make([]byte, 64))
		r.post(0, nil, buffers, 64, testLKey)
		for Total(r.port.Counters().Sent).Frames == 0 {
			time.Sleep(time.Millisecond)
		}
		if destroy {
			fatal.If(t, r.port.DestroySQ(r.sq))
		} else if err := errors.Join(r.port.ModifySQ(r.sq, StateReady, StateReset), r.port.ModifySQ(r.sq, StateReset, StateReady)); err != nil {
			t.Fatal(err)
		}
		r.put(records+4, make([]byte, 4))
		for range cap(r.sent) + 1 {
			<-r.sent
		}
		if !destroy {
			r.posted = 0
			r.post(0, nil, buffers, 60, testLKey)
			if got := <-r.sent; len(got) != 60 {
				t.Errorf("a frame of %d bytes after the reset", len(got))
			}
			if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != prm.CQERequester || cqe.Counter != 0 {
				t.Errorf("completion %+v", cqe)
			}
		}
		r.port.Close()
		if n := len(r.cq.done); n != 0 {
			t.Errorf("destroyed %t: %d completions of the earlier life", destroy, n)
		}
	}
}

func TestReceive(t *testing.T) {
	r := newRig(t)
	r.steer()
	frame := echoFrame(t)
	r.port.Receive(frame) // no buffer yet
	r.receive(0, 64)
	r.port.Receive(frame) // too long
	r.receive(0, 0x1000)
	other := bytes.Clone(frame)
	other[5] = 9
	r.port.Receive(other) // for somebody else
	r.port.Receive(frame)
	b := r.cq.next(t)
	cqe, _ := prm.ParseCQE(b)
	if cqe.Opcode != prm.CQERecv || cqe.QPN != r.rq || int(cqe.ByteCount) != len(frame) || cqe.Counter != 0 {
		t.Errorf("completion %+v", cqe)
	}
	// Linux computes this value: the sum of the packet, whose header has a sum of all ones.
	if got, want := be.Uint16(b[20:]), fold(sum(0, frame[34:])+0xffff); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
	got := make([]byte, len(frame))
	if err := r.mem.Read(buffers, got); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("received %x, %v", got, err)
	}
	if c := r.port.Counters(); r.port.NoBuffer(0) != 2 || c.Unmatched != 1 || c.Received[Unicast].Frames != 1 {
		t.Errorf("counters %+v", c)
	}
}

// A frame that is longer than the first part of its buffer goes on in the second, as with an MTU above
// 3,600 bytes in Linux.
func TestReceiveParts(t *testing.T) {
	r := newRig(t)
	r.steer()
	frame := echoFrame(t)
	var e []byte
	for i, n := range []int{40, 0x800} {
		e = be.AppendUint64(be.AppendUint32(be.AppendUint32(e, uint32(n)|prm.StartPadding), testLKey), buffers+uint64(i)*0x1000)
	}
	r.entry(0, e)
	r.port.Receive(frame)
	r.cq.next(t)
	got := make([]byte, len(frame))
	if err := errors.Join(r.mem.Read(buffers, got[:40]), r.mem.Read(buffers+0x1000, got[40:])); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("received %x, %v, want %x", got, err, frame)
	}
}

// TestOwnFrames sends a frame to the port's own address: it stays in the port if a TIR takes such frames, and goes to the
// network otherwise.
func TestOwnFrames(t *testing.T) {
	r := newRig(t)
	r.steer()
	frame := echoFrame(t)
	r.port.SetAddresses([]net.HardwareAddr{frame[:6]})
	r.put(buffers+0x1000, frame[30:])
	send := func() { r.post(0, frame[:30], buffers+0x1000, len(frame)-30, testLKey) }
	send()
	if got := <-r.sent; !bytes.Equal(got, frame) {
		t.Errorf("sent %x, want %x", got, frame)
	}
	r.cq.next(t)
	for id := range r.port.tirs {
		fatal.If(t, r.port.ModifyTIR(id, func(t *TIR) { t.Own = true }))
	}
	r.receive(0, 0x1000)
	send()
	for _, want := range []prm.CQEOpcode{prm.CQERecv, prm.CQERequester} {
		if cqe, _ := prm.ParseCQE(r.cq.next(t)); cqe.Opcode != want {
			t.Errorf("completion %+v, want %v", cqe, want)
		}
	}
	got := make([]byte, len(frame))
	if err := r.mem.Read(buffers, got); err != nil || !bytes.Equal(got, frame) || len(r.sent) > 0 {
		t.Errorf("received %x, %v; %d frames were sent", got, err, len(r.sent))
	}
}

// TestShortOwnFrame sends a frame to the port's own address that is too short for an Ethernet header.
func TestShortOwnFrame(t *testing.T) {
	r := newRig(t)
	r.steer()
	frame := echoFrame(t)
	r.port.SetAddresses([]net.HardwareAddr{frame[:6]})
	r.put(buffers, frame)
	r.post(0, nil, buffers, 8, testLKey)
	r.cq.next(t) // in error or not
}
