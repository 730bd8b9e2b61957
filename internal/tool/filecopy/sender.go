package filecopy

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// SenderConfig configures the sending side of a copy.
type SenderConfig struct {
	SideConfig
	Src  io.Reader
	Size int64 // bytes of Src to send; 0 or less: up to its end

	// Flip is the offset on the wire of a byte in which a bit is flipped after the
	// sender's key, so that the receiver's key finds it. Negative: none.
	Flip int64
}

// Sender is the sending side of a copy.
type Sender struct {
	*end
	c SenderConfig

	tokens chan struct{} // one for each free slot
	filled []ioDone      // read and not sent yet, in order
	grants []grant       // slots of the peer, in order

	granted, sent, done uint64 // numbers of chunks
	data                int64  // bytes of data that were read
	eof                 bool   // the end of Src was read
	saidDone            bool
	saidBye, over       bool           // RESULT was received; BYE was acknowledged
	bytes               map[uint64]int // bytes in memory of each chunk in flight
	arrivedBytes        int64          // bytes in memory of the chunks that have arrived
	flipped             *verbs.MR      // the wire bytes of the chunk with the flipped byte
	flips               bool           // that chunk was sent
}

// grant is a slot of the peer that may be written to.
type grant struct {
	rkey uint32
	addr uint64
}

// NewSender makes the sending side of a copy on a device.
func NewSender(dev *verbs.Device, p *keyplan.Plan, c SenderConfig) (*Sender, error) {
	s := &Sender{c: c, tokens: make(chan struct{}, p.Slots), bytes: make(map[uint64]int)}
	var access rdma.Access
	if p.Op == keyplan.Read {
		access = rdma.RemoteRead
	}
	var err error
	if s.end, err = newEnd(dev, p, p.Sides()[0], c.SideConfig, access); err != nil {
		return nil, err
	}
	return s, nil
}

// Run sends the file and returns when the receiver has it. Closing gone tells Run that the
// other side has gone, which ends it. A bad signature on either side is a *BadError.
func (s *Sender) Run(ctx context.Context, gone <-chan struct{}) (*Outcome, error) {
	s.gone = gone
	for range s.plan.Slots {
		s.tokens <- struct{}{}
	}
	go s.read()
	err := s.run(ctx, s)
	if s.saidBye {
		err = s.verdict() // the copy is complete, even if BYE was lost
	}
	return &s.out, err
}

// Close destroys the objects of the sender on its device.
func (s *Sender) Close() {
	if s.flipped != nil {
		_ = s.flipped.Close()
	}
	s.close()
}

// read fills slots in a goroutine of its own, because reading a file may block. The
// last chunk is shorter than the others, possibly empty.
func (s *Sender) read() {
	for k := uint64(0); ; k++ {
		select {
		case <-s.tokens:
		case <-s.quit:
			return
		}
		n, err := s.fill(s.buffer(k, s.size), k)
		s.io <- ioDone{k, n, err}
		if err != nil || n < s.size {
			return
		}
	}
}

// fill reads chunk k into p. It returns fewer bytes than len(p) at the end of SRC only. If
// the size of SRC is known, bytes that are appended during the copy are not sent, and a
// file that becomes shorter is an error.
func (s *Sender) fill(p []byte, k uint64) (int, error) {
	from := int64(k) * int64(s.size)
	known := s.c.Size > 0
	if known {
		p = p[:max(min(int64(len(p)), s.c.Size-from), 0)]
	}
	n, err := io.ReadFull(s.c.Src, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		if err = nil; known && n < len(p) {
			err = fmt.Errorf("SRC ends at byte %d of %d: it became shorter while it was read: %w", from+int64(n), s.c.Size, io.ErrUnexpectedEOF)
		}
	}
	return n, err
}

// onFile handles a chunk that was read.
func (s *Sender) onFile(d ioDone) error {
	if d.err != nil {
		return d.err
	}
	s.eof = d.n < s.size
	if d.n == 0 {
		return nil
	}
	n, err := s.side.Memory.Holds(int64(d.n))
	if err != nil {
		return fmt.Errorf("SRC: its last %w", err)
	}
	s.data += n
	if err := s.plan.CheckData(n); err != nil {
		return fmt.Errorf("SRC: its last %w", err)
	}
	if d.chunk == 0 {
		if err := s.sample(d.n, int(s.plan.Wire.Len(n))); err != nil {
			return err
		}
	}
	s.filled = append(s.filled, d)
	return nil
}

// sample keeps the samples of both domains.
func (s *Sender) sample(n, wire int) error {
	memory := s.buffer(0, n)
	b, _, err := s.onWire(0, memory, wire)
	s.out.memory, s.out.wire = sampleOf(memory, s.plan.Memory.Stream), sampleOf(b, s.plan.Wire.Stream)
	return err
}

// onWire returns the n wire bytes of chunk k, computed from its bytes in memory, and the
// bad block that the key finds.
func (s *Sender) onWire(k uint64, memory []byte, n int) ([]byte, *mkey.BadBlock, error) {
	wire := make([]byte, n)
	if s.keys == nil {
		copy(wire, memory)
		return wire, nil, nil
	}
	own := s.keyOf(k)
	key, err := mkey.New(mkey.KeyConfig{
		Layout:    mkey.List{{Memory: mkey.Bytes(memory), Length: uint64(len(memory))}},
		Signature: own.Signature, Crypto: own.Crypto,
	})
	if err != nil {
		return nil, nil, err
	}
	defer key.Close()
	tx, err := key.NewReader(0, int64(n))
	if err != nil {
		return nil, nil, err
	}
	defer tx.Close()
	if _, err := tx.ReadAt(wire, 0); err != nil || own.Signature == nil {
		return wire, nil, err
	}
	bad, err := key.Check()
	return wire, s.side.Whole(s.plan, k, bad), err
}

// advance sends the chunks for which there is a slot, and DONE after the last one.
func (s *Sender) advance() error {
	for len(s.filled) > 0 && (s.plan.Op == keyplan.Read || len(s.grants) > 0) {
		d := s.filled[0]
		s.filled = s.filled[1:]
		if err := s.send(d); err != nil {
			return err
		}
	}
	if !s.eof || s.done < s.sent || len(s.filled) > 0 || s.saidDone {
		return nil
	}
	if s.c.Flip >= 0 && !s.flips {
		return fmt.Errorf("--flip %d: the wire has only %d bytes", s.c.Flip, s.plan.Wire.Len(s.data))
	}
	s.saidDone = true
	s.out.Chunks, s.out.Data = s.sent, s.data
	return s.sendMessage(s.control.Start(), &message{
		kind: kindDone, chunk: s.sent, length: uint64(s.data),
		badChunks: s.out.Bad, bad: s.out.First, memory: s.out.memory, wire: s.out.wire,
	}).Complete()
}

// send posts a chunk or offers it to the peer.
func (s *Sender) send(d ioDone) error {
	n, _ := s.side.Memory.Holds(int64(d.n)) // checked when it was read
	wire := int(s.plan.Wire.Len(n))
	local, rkey, addr := s.sge(d.chunk, wire)
	own := false // the chunk is sent from a copy of its wire bytes with a flipped bit, not through the key
	if f := s.c.Flip - s.plan.Wire.Len(int64(d.chunk)*s.plan.Chunk); s.c.Flip >= 0 && f >= 0 && f < int64(wire) {
		mr, err := s.flip(d, wire, f)
		if err != nil {
			return err
		}
		own, local, rkey, addr = true, mr.SGE(0, wire), mr.RKey(), mr.Addr()
	}
	c := s.bulk.Start()
	if s.plan.Op == keyplan.Read {
		c = s.control.Start() // an offer follows the configuration of its key
	}
	if s.keys != nil && !own {
		s.configure(c, d.chunk)
	}
	switch s.plan.Op {
	case keyplan.Write:
		to := s.grants[0]
		s.grants = s.grants[1:]
		c.ID(idChunk|d.chunk).Signaled().WriteImm(to.rkey, to.addr, uint32(d.chunk)).SGE(local)
	case keyplan.Send:
		s.grants = s.grants[1:]
		c.ID(idChunk | d.chunk).Signaled().Send().SGE(local)
	case keyplan.Read:
		s.sendMessage(c, &message{kind: kindReady, rkey: rkey, chunk: d.chunk, addr: addr, length: uint64(wire)})
	}
	s.bytes[d.chunk] = d.n
	s.sent++
	if s.plan.Op != keyplan.Read {
		s.begun(d.chunk)
	}
	return c.Complete()
}

// flip makes a region with the wire bytes of a chunk, with one bit flipped.
func (s *Sender) flip(d ioDone, n int, at int64) (*verbs.MR, error) {
	wire, bad, err := s.onWire(d.chunk, s.buffer(d.chunk, d.n), n)
	if err != nil {
		return nil, err
	}
	if err := s.found(bad); err != nil {
		return nil, err
	}
	wire[at] ^= 1
	if d.chunk == 0 {
		s.out.wire = sampleOf(wire, s.plan.Wire.Stream)
	}
	s.flips = true
	s.flipped, err = s.pd.Register(wire, s.access)
	return s.flipped, err
}

// onCompletion handles the completion of a chunk that was written or sent, or of BYE.
func (s *Sender) onCompletion(wc rdma.WC) error {
	switch wc.ID {
	case idControl:
		s.over = true
		return nil
	case idChunk | s.done:
		s.ended(wc, s.done, int64(s.bytes[s.done]))
		return s.arrived()
	}
	return fmt.Errorf("unexpected completion %#x", wc.ID)
}

// arrived is called when the peer has the oldest chunk in flight.
func (s *Sender) arrived() error {
	k := s.done
	s.done++
	if err := s.check(k); err != nil {
		return err
	}
	s.arrivedBytes += int64(s.bytes[k])
	delete(s.bytes, k)
	if s.conf.Progress != nil {
		s.conf.Progress(s.arrivedBytes)
	}
	s.tokens <- struct{}{}
	return nil
}

// onMessage handles a control message of the receiver.
func (s *Sender) onMessage(m *message) error {
	switch {
	case m.kind == kindCredit && s.plan.Op != keyplan.Read && m.chunk == s.granted && s.granted < s.sent+uint64(s.plan.Slots):
		s.granted++
		s.grants = append(s.grants, grant{m.rkey, m.addr})
		return nil
	case m.kind == kindTaken && s.plan.Op == keyplan.Read && m.chunk == s.done && s.done < s.sent:
		return s.arrived()
	case m.kind == kindResult && s.saidDone && m.length == uint64(s.plan.Peer.Len(s.data)):
		s.out.PeerBad, s.out.PeerBad1, s.out.peer = m.badChunks, m.bad, m.memory
		s.out.FlipMissed = s.flips && m.badChunks == 0
		s.out.Elapsed = time.Since(s.start)
		s.saidBye = true
		return s.sendMessage(s.control.Start().ID(idControl).Signaled(), &message{kind: kindBye}).Complete()
	}
	return fmt.Errorf("the receiver sent a message that does not fit: type %d, chunk %d, when %d chunks were sent", m.kind, m.chunk, s.sent)
}

func (s *Sender) finished() bool { return s.over }
