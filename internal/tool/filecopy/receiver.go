package filecopy

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// ReceiverConfig configures the receiving side of a copy.
type ReceiverConfig struct {
	SideConfig
	Dst io.Writer

	// Commit, if not nil, is called when everything was written, before the sender
	// gets RESULT: putting the file in its place is a part of the copy.
	Commit func() error
}

// Receiver is the receiving side of a copy.
type Receiver struct {
	*end
	c     ReceiverConfig
	write chan writeJob

	granted, arrived, written uint64 // numbers of chunks
	data                      int64  // bytes of data that arrived
	writtenBytes              int64
	short                     bool // a chunk was shorter than the others: the last one
	offers                    []offer
	fetched                   uint64                // number of READs posted
	lengths                   [keyplan.MaxSlots]int // bytes on the wire of the READ of each slot
	done                      bool                  // the sender has sent everything
	saidResult, over          bool
}

// offer is a chunk in a slot of the peer that may be read.
type offer struct {
	rkey   uint32
	addr   uint64
	length int
}

// writeJob is a chunk to write.
type writeJob struct {
	chunk uint64
	buf   []byte
}

// NewReceiver makes the receiving side of a copy on a device.
func NewReceiver(dev *verbs.Device, p *keyplan.Plan, c ReceiverConfig) (*Receiver, error) {
	r := &Receiver{c: c, write: make(chan writeJob, p.Slots)}
	var access rdma.Access
	if p.Op == keyplan.Write {
		access = rdma.RemoteWrite
	}
	var err error
	if r.end, err = newEnd(dev, p, p.Sides()[1], c.SideConfig, access); err != nil {
		return nil, err
	}
	return r, nil
}

// Run receives the file and returns when the sender has confirmed that it knows the
// result. Closing gone tells Run that the other side has gone, which ends it. A bad
// signature on either side is a *BadError.
func (r *Receiver) Run(ctx context.Context, gone <-chan struct{}) (*Outcome, error) {
	r.gone = gone
	go r.writeAll()
	err := r.run(ctx, r)
	if r.saidResult {
		err = r.verdict() // the file is in its place, even if BYE did not arrive
	}
	return &r.out, err
}

// Close destroys the objects of the receiver on its device.
func (r *Receiver) Close() { r.close() }

// writeAll writes chunks in a goroutine of its own, because a file may keep it
// waiting.
func (r *Receiver) writeAll() {
	for {
		select {
		case j := <-r.write:
			n, err := r.c.Dst.Write(j.buf)
			r.io <- ioDone{j.chunk, n, err}
			if err != nil {
				return
			}
		case <-r.quit:
			return
		}
	}
}

// onFile handles a chunk that was written. Its slot is free.
func (r *Receiver) onFile(d ioDone) error {
	if d.err != nil {
		return d.err
	}
	r.written++
	r.writtenBytes += int64(d.n)
	if r.conf.Progress != nil {
		r.conf.Progress(r.writtenBytes)
	}
	return nil
}

// advance grants the free slots or fetches the offered chunks, and finishes when
// everything is written.
func (r *Receiver) advance() error {
	free := r.written + uint64(r.plan.Slots)
	for r.plan.Op != keyplan.Read && r.granted < free && !r.done {
		if err := r.grant(r.granted); err != nil {
			return err
		}
		r.granted++
	}
	for len(r.offers) > 0 && r.fetched < free {
		o := r.offers[0]
		r.offers = r.offers[1:]
		if err := r.fetch(r.fetched, o); err != nil {
			return err
		}
		r.fetched++
	}
	if !r.done || r.written < r.arrived || r.saidResult {
		return nil
	}
	return r.finish()
}

// grant makes the slot of chunk k ready and sends CREDIT.
func (r *Receiver) grant(k uint64) error {
	local, rkey, addr := r.sge(k, r.plan.ChunkWire())
	recv := verbs.RecvWR{ID: idChunk | k}
	if r.plan.Op == keyplan.Send {
		// The key is configured below, before CREDIT leaves: the sender cannot send the chunk
		// earlier.
		recv.SGEs = []rdma.SGE{local}
	}
	if _, err := r.bulk.PostRecv(recv); err != nil {
		return err
	}
	c := r.control.Start()
	if r.keys != nil {
		r.configure(c, k)
	}
	return r.sendMessage(c, &message{kind: kindCredit, rkey: rkey, chunk: k, addr: addr}).Complete()
}

// fetch reads chunk k out of the sender's memory.
func (r *Receiver) fetch(k uint64, o offer) error {
	local, _, _ := r.sge(k, o.length)
	r.lengths[r.slot(k)] = o.length
	c := r.bulk.Start()
	if r.keys != nil {
		r.configure(c, k)
	}
	r.begun(k)
	return c.ID(idChunk|k).Signaled().Read(o.rkey, o.addr).SGE(local).Complete()
}

// onCompletion handles the completion of a chunk.
func (r *Receiver) onCompletion(wc rdma.WC) error {
	k := r.arrived
	length := int64(wc.ByteLen)
	switch {
	case wc.ID != idChunk|k:
		return fmt.Errorf("unexpected completion %#x", wc.ID)
	case r.plan.Op == keyplan.Write && (wc.Opcode != rdma.OpRecvRDMAWithImm || wc.Imm != uint32(k)),
		r.plan.Op == keyplan.Send && wc.Opcode != rdma.OpRecv:
		return fmt.Errorf("the sender sent something other than chunk %d: %v, immediate %d", k, wc.Opcode, wc.Imm)
	case r.plan.Op == keyplan.Read:
		length = int64(r.lengths[r.slot(k)])
	}
	n, err := r.plan.Wire.Holds(length)
	switch {
	case err != nil:
		return fmt.Errorf("chunk %d: on the wire, %w", k, err)
	case n == 0 || n > r.plan.Chunk || r.short:
		return fmt.Errorf("the sender sent %d bytes of data as chunk %d, when a chunk has %d and only the last may have less", n, k, r.plan.Chunk)
	}
	r.ended(wc, k, n)
	r.arrived++
	r.short = n < r.plan.Chunk
	r.data += n
	if err := r.check(k); err != nil {
		return err
	}
	buf := r.buffer(k, int(r.side.Memory.Len(n)))
	if k == 0 {
		r.out.peer = sampleOf(buf, r.side.Memory.Stream)
	}
	r.write <- writeJob{k, buf}
	if r.plan.Op != keyplan.Read {
		return nil
	}
	return r.sendMessage(r.bulk.Start(), &message{kind: kindTaken, chunk: k}).Complete()
}

// onMessage handles a control message of the sender.
func (r *Receiver) onMessage(m *message) error {
	slots := uint64(r.plan.Slots)
	switch {
	case m.kind == kindReady && r.plan.Op == keyplan.Read && !r.done &&
		m.chunk == r.fetched+uint64(len(r.offers)) && m.chunk < r.arrived+slots && m.length <= uint64(r.plan.ChunkWire()):
		r.offers = append(r.offers, offer{m.rkey, m.addr, int(m.length)})
		return nil
	case m.kind == kindDone && !r.done:
		// The sender sends DONE after its last chunk was acknowledged, so all
		// completions came before.
		if r.arrived != m.chunk || uint64(r.data) != m.length {
			return fmt.Errorf("the sender says that it sent %d chunks and %d bytes of data: %d and %d have arrived", m.chunk, m.length, r.arrived, r.data)
		}
		r.done = true
		r.out.memory, r.out.wire = m.memory, m.wire
		r.out.PeerBad, r.out.PeerBad1 = m.badChunks, m.bad
		if m.bad != nil && !r.conf.KeepGoing {
			return &BadError{senderName, m.bad}
		}
		return nil
	case m.kind == kindBye && r.saidResult:
		r.over = true
		return nil
	}
	return fmt.Errorf("the sender sent a message that does not fit: type %d, chunk %d, when %d chunks have arrived", m.kind, m.chunk, r.arrived)
}

// finish is called when all chunks were written.
func (r *Receiver) finish() error {
	r.out.Chunks, r.out.Data = r.arrived, r.data
	if r.c.Commit != nil {
		if err := r.c.Commit(); err != nil {
			return err
		}
	}
	r.out.Elapsed = time.Since(r.start)
	r.saidResult = true
	return r.sendMessage(r.control.Start(), &message{
		kind: kindResult, length: uint64(r.writtenBytes), badChunks: r.out.Bad, bad: r.out.First, memory: r.out.peer,
	}).Complete()
}

func (r *Receiver) finished() bool { return r.over }
