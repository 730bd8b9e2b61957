package ether

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Config configures a port.
type Config struct {
	Memory Memory

	// Resolve returns the guest-physical address of n bytes at addr of a memory key, or
	// an error.
	Resolve func(lkey uint32, addr, n uint64) (uint64, error)

	// Transmit sends a frame to the network. It may block; frames are lost rather than
	// kept.
	Transmit func(frame []byte)

	// Clock returns the time for completions.
	Clock func() uint64

	// Trace is called with the reason why a request or a frame was refused; it may be nil.
	Trace func(object string, number uint32, err error)
}

// Kind is the kind of a frame's destination.
type Kind int

// The kinds.
const (
	Unicast Kind = iota
	Multicast
	Broadcast
	kinds
)

// kindOf returns the kind of a frame's destination.
func kindOf(frame []byte) Kind {
	switch {
	case frame[0]&1 == 0:
		return Unicast
	case bytes.Equal(frame[:6], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}):
		return Broadcast
	}
	return Multicast
}

// Count is a number of frames and of their bytes.
type Count struct{ Frames, Bytes uint64 }

func (c *Count) add(frame []byte) {
	c.Frames++
	c.Bytes += uint64(len(frame))
}

// Counters count the frames of a port.
type Counters struct {
	Sent, Received [kinds]Count
	Unmatched      uint64 // received, but no flow table has led to a queue
}

// Total returns the sum of the kinds.
func Total(kinds [kinds]Count) (t Count) {
	for _, k := range kinds {
		t.Frames += k.Frames
		t.Bytes += k.Bytes
	}
	return t
}

// Port is the Ethernet port. Its methods are safe for concurrent use.
type Port struct {
	cfg Config

	mu       sync.Mutex   // guards the following fields and the queues
	numbers  number.Range // of all objects but those of steering
	rqs      map[uint32]*Queue
	sqs      map[uint32]*Queue
	rqts     map[uint32]*rqt
	tirs     map[uint32]*TIR
	steer    steering
	own      []net.HardwareAddr // the port's unicast addresses
	counts   Counters
	noBuffer [256]uint64 // by counter set

	in  incoming // the entry of a receive queue that takes a frame
	out outgoing // the request that the goroutine executes which sends; only that goroutine uses it

	rung    []uint32  // send queues that were rung
	sending bool      // a goroutine sends
	idle    sync.Cond // signalled when sending turned false
	closed  bool
}

// incoming is memory for an entry of a receive queue.
type incoming struct {
	entry []byte
	data  []prm.Data
}

// outgoing is memory for a request of a send queue.
type outgoing struct {
	entry []byte
	wqe   prm.EthernetWQE
	frame []byte
}

// maxObjects bounds the objects of each kind.
const maxObjects = 1 << 16

// New makes a port without objects.
func New(cfg Config) *Port {
	p := &Port{
		cfg: cfg, rqs: make(map[uint32]*Queue), sqs: make(map[uint32]*Queue), rqts: make(map[uint32]*rqt), tirs: make(map[uint32]*TIR),
		steer: steering{tables: make(map[uint32]*Table)},
	}
	p.idle.L = &p.mu
	return p
}

// insert gives an object a number. p.mu is held.
func insert[T any](p *Port, kind string, m map[uint32]T, x T) (uint32, error) {
	if len(m) >= maxObjects {
		return 0, failure.New("create", syscall.ENOMEM, "there are %d objects of kind %s already", maxObjects, kind)
	}
	n := number.Next(&p.numbers, m)
	m[n] = x
	return n, nil
}

// find returns the object with a number. p.mu is held.
func find[T any](op, kind string, m map[uint32]*T, n uint32) (*T, error) {
	if x := m[n]; x != nil {
		return x, nil
	}
	return nil, failure.New(op, syscall.ENOENT, "%s %#x does not exist", kind, n)
}

func remove[T any](p *Port, kind string, m map[uint32]*T, n uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := find("destroy", kind, m, n)
	delete(m, n)
	return err
}

// Counters returns the counters of the port.
func (p *Port) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// NoBuffer returns how many frames were dropped because their queue, of a counter set, had no entry with room.
func (p *Port) NoBuffer(set uint8) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noBuffer[set]
}

// Close destroys all objects and waits until nothing touches the guest's memory. Frames
// that arrive later are dropped.
func (p *Port) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	clear(p.rqs)
	clear(p.sqs)
	p.rung = nil
	for p.sending {
		p.idle.Wait()
	}
}

// Ring sends the requests that were posted to a send queue. It does not wait for them.
func (p *Port) Ring(n uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ring(n)
}

func (p *Port) ring(n uint32) {
	if p.closed || p.sqs[n] == nil || slices.Contains(p.rung, n) {
		return
	}
	p.rung = append(p.rung, n)
	if !p.sending {
		p.sending = true
		go p.send()
	}
}

// send sends until no send queue was rung.
func (p *Port) send() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.rung) > 0 {
		n := p.rung[0]
		p.rung = p.rung[1:]
		if q := p.sqs[n]; q != nil {
			p.drain(q)
		}
	}
	p.sending = false
	p.idle.Broadcast()
}

// maxBurst is the number of requests of one queue before the other queues have their turn.
const maxBurst = 64

// drain executes the requests of a queue, or some of them if there are many. p.mu is held;
// it is released while a frame is sent.
func (p *Port) drain(q *Queue) {
	for range maxBurst {
		if q.state == StateError {
			p.flush(q)
		}
		if q.state != StateReady || p.sqs[q.number] != q {
			return
		}
		p.out.wqe.Control = prm.Control{}
		rung, err := q.counter(p.cfg.Memory, prm.DoorbellSend)
		if err != nil {
			p.fail(q, err, 0)
			return
		}
		if rung == q.next {
			return
		}
		life := q.life
		blocks, err := p.one(q, rung)
		switch {
		case p.sqs[q.number] != q || q.life != life:
			return // destroyed, or reset, while a frame was sent
		case err != nil:
			p.fail(q, err, blocks)
			return
		}
		p.completeSQ(q, blocks)
	}
	p.rung = append(p.rung, q.number)
}

func (p *Port) trace(object string, number uint32, err error) {
	if p.cfg.Trace != nil {
		p.cfg.Trace(object, number, err)
	}
}

// fail puts a queue in error. It completes the request of a send queue, or the entry of a receive queue, at q.next with
// the error, and flushes what is posted behind it. blocks is the length of the request, 1 for an entry, or 0 if it could
// not be read.
func (p *Port) fail(q *Queue, err error, blocks int) {
	object, cqe := "sq", prm.CQE{Opcode: prm.CQERequesterErr, SendOp: p.out.wqe.Opcode, Syndrome: prm.SyndromeLocalQPOp}
	if q.kind == "RQ" {
		object, cqe = "rq", prm.CQE{Opcode: prm.CQERecvErr, Syndrome: prm.SyndromeLocalLength}
	}
	p.trace(object, q.number, err)
	q.state = StateError
	cqe.QPN, cqe.Counter = q.number, q.next
	q.CQ.Complete(&cqe)
	q.next += uint16(blocks)
	p.flush(q)
}

// flush completes all that is posted to a queue in error with flush errors, if the queue's context has flush_in_error_en.
// mlx5_core makes a send queue in error ready again only after every request that it posted has completed. p.mu is held.
func (p *Port) flush(q *Queue) {
	record, cqe := uint64(prm.DoorbellSend), prm.CQE{Opcode: prm.CQERequesterErr, QPN: q.number, Syndrome: prm.SyndromeFlush}
	if q.kind == "RQ" {
		record, cqe.Opcode = prm.DoorbellRecv, prm.CQERecvErr
	}
	rung, err := q.counter(p.cfg.Memory, record)
	if err != nil || !q.Flush || int(rung-q.next) > 1<<q.LogSize {
		return
	}
	for blocks := 1; q.next != rung; q.next += uint16(blocks) {
		if q.kind == "SQ" {
			if blocks, err = p.fetch(q, int(rung-q.next)); err != nil {
				return
			}
		}
		cqe.Counter = q.next
		q.CQ.Complete(&cqe)
	}
}

// completeSQ completes the request at hand, which has that many blocks.
func (p *Port) completeSQ(q *Queue, blocks int) {
	w, done := &p.out.wqe, q.next
	q.next += uint16(blocks)
	if w.Flags&0xc == prm.FlagCQUpdate {
		q.CQ.Complete(&prm.CQE{Opcode: prm.CQERequester, QPN: q.number, SendOp: w.Opcode, Counter: done, Timestamp: p.cfg.Clock()})
	}
}

// one executes a request and returns its length in blocks, also with an error, or 0 if it could not be read. p.mu is held,
// and released while the frame is sent.
func (p *Port) one(q *Queue, rung uint16) (blocks int, err error) {
	const op = "send queue"
	waiting := int(rung - q.next)
	if waiting > 1<<q.LogSize {
		return 0, failure.New(op, syscall.EINVAL, "the doorbell is %d blocks ahead, the queue has %d", waiting, 1<<q.LogSize)
	}
	if blocks, err = p.fetch(q, waiting); err != nil {
		return 0, err
	}
	w := &p.out.wqe
	if err := w.Parse(p.out.entry); err != nil || w.Opcode == prm.OpNop {
		return blocks, err
	}
	if err := p.build(q); err != nil {
		return blocks, err
	}
	return blocks, p.transmit()
}

// fetch copies the request at hand and returns its blocks.
func (p *Port) fetch(q *Queue, waiting int) (int, error) {
	const op = "send queue"
	o := &p.out
	o.entry = append(o.entry[:0], make([]byte, prm.BlockSize)...)
	if err := p.cfg.Memory.Read(q.address(q.next), o.entry); err != nil {
		return 0, err
	}
	ctrl, err := prm.ParseControl(o.entry)
	if err != nil {
		return 0, err
	}
	blocks := ctrl.Blocks()
	switch {
	case blocks > waiting:
		return 0, failure.New(op, syscall.EINVAL, "request %d has %d blocks, %d were posted", q.next, blocks, waiting)
	case ctrl.QPN != q.number:
		return 0, failure.New(op, syscall.EINVAL, "request %d names queue %#x in queue %#x", q.next, ctrl.QPN, q.number)
	}
	for i := 1; i < blocks; i++ {
		at := len(o.entry)
		o.entry = append(o.entry, make([]byte, prm.BlockSize)...)
		if err := p.cfg.Memory.Read(q.address(q.next+uint16(i)), o.entry[at:]); err != nil {
			return 0, err
		}
	}
	return blocks, nil
}

// maxLSO is the largest frame before segmentation: 2^16 bytes of payload, and headers.
const maxLSO = 1<<16 + 1<<10

// build gathers the frame of a request.
func (p *Port) build(q *Queue) error {
	const op = "send queue"
	o := &p.out
	w := &o.wqe
	limit := MaxFrame
	if w.Opcode == prm.OpLSO {
		limit = maxLSO
	}
	o.frame = append(o.frame[:0], w.Headers...)
	for _, d := range w.Data {
		at := len(o.frame)
		if uint64(d.Length) > uint64(max(0, limit-at)) {
			return failure.New(op, syscall.EINVAL, "request %d: a frame of more than %d bytes", q.next, limit)
		}
		n := int(d.Length)
		addr, err := p.cfg.Resolve(d.LKey, d.Addr, uint64(n))
		if err != nil {
			return err
		}
		o.frame = append(o.frame, make([]byte, n)...)
		if err := p.cfg.Memory.Read(addr, o.frame[at:]); err != nil {
			return err
		}
	}
	if len(o.frame) < headerEthernet {
		return failure.New(op, syscall.EINVAL, "request %d: a frame of %d bytes", q.next, len(o.frame))
	}
	if w.InsertVLAN {
		tag := [4]byte{typeCVLAN >> 8, typeCVLAN & 0xff, byte(w.VLAN >> 8), byte(w.VLAN)}
		o.frame = append(o.frame, tag[:]...)
		copy(o.frame[16:], o.frame[12:len(o.frame)-4])
		copy(o.frame[12:], tag[:])
	}
	return nil
}

// transmit sends the frame of a request, in segments if it asks for that.
func (p *Port) transmit() error {
	o := &p.out
	w := &o.wqe
	if w.Opcode == prm.OpLSO {
		headers := len(w.Headers)
		if w.InsertVLAN {
			headers += 4
		}
		return segment(o.frame, headers, w.SegmentSize, p.put)
	}
	l := parse(o.frame)
	fillChecksums(o.frame, &l, w.L3Checksum, w.L4Checksum)
	p.put(o.frame)
	return nil
}

// SetAddresses tells the port which unicast addresses are its own.
func (p *Port) SetAddresses(own []net.HardwareAddr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = own
}

func (p *Port) isOwn(frame []byte) bool {
	return len(frame) >= headerEthernet && slices.ContainsFunc(p.own, func(a net.HardwareAddr) bool { return bytes.Equal(a, frame[:6]) })
}

// put sends a frame. p.mu is held, and released while it is sent. A frame to an address of the port stays in it if a
// TIR takes such frames: those of ethtool's loopback test.
func (p *Port) put(frame []byte) {
	p.counts.Sent[kindOf(frame)].add(frame)
	if p.isOwn(frame) && p.take(frame, true) {
		return
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	p.cfg.Transmit(frame)
}

// Receive takes a frame from the network. It keeps nothing of it.
func (p *Port) Receive(frame []byte) {
	if len(frame) < headerEthernet || len(frame) > MaxFrame {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if !p.take(frame, false) {
		p.counts.Unmatched++
	}
}

// take delivers a frame to the TIRs that the steering tables find for it. own says that the port itself has sent it: then
// only TIRs with Own set get it. take reports whether a receive queue got it. p.mu is held.
func (p *Port) take(frame []byte, own bool) (delivered bool) {
	l := parse(frame)
	fields := fieldsOf(frame, &l)
	p.steer.walk(&fields, func(id uint32) {
		t := p.tirs[id]
		if t == nil || own && !t.Own {
			return
		}
		var cqe prm.EthernetCQE
		if q := p.pick(t, frame, &l, &cqe); q != nil {
			delivered = true
			cqe.Checksum = packetSum(frame, &l)
			p.deliver(q, frame, &cqe)
		}
	})
	return delivered
}

// deliver puts a frame into the next entry of a receive queue. p.mu is held.
func (p *Port) deliver(q *Queue, frame []byte, cqe *prm.EthernetCQE) {
	if q.state != StateReady {
		return
	}
	rung, err := q.counter(p.cfg.Memory, prm.DoorbellRecv)
	if err != nil {
		p.fail(q, err, 0)
		return
	}
	waiting := int(rung - q.next)
	switch {
	case waiting == 0:
		p.noBuffer[q.CounterSet]++
		return
	case waiting > 1<<q.LogSize:
		p.fail(q, failure.New("receive queue", syscall.EINVAL, "the doorbell is %d entries ahead, the queue has %d", waiting, 1<<q.LogSize), 0)
		return
	}
	if fits, err := p.scatter(q, frame); err != nil {
		p.fail(q, err, 1)
		return
	} else if !fits {
		p.noBuffer[q.CounterSet]++
		return
	}
	p.counts.Received[kindOf(frame)].add(frame)
	cqe.RQN, cqe.Counter, cqe.ByteCount, cqe.Timestamp = q.number, q.next, uint32(len(frame)), p.cfg.Clock()
	q.next++
	q.CQ.Complete(cqe)
}

// scatter writes a frame to the buffers of the entry at hand. It reports whether they have
// room for it: the driver makes them as large as its MTU, and adapters drop longer frames.
func (p *Port) scatter(q *Queue, frame []byte) (fits bool, err error) {
	in := &p.in
	in.entry = append(in.entry[:0], make([]byte, 1<<q.LogStride)...)
	if err := p.cfg.Memory.Read(q.address(q.next), in.entry); err != nil {
		return false, err
	}
	in.data = prm.ParseRecv(in.data[:0], in.entry)
	var room uint64
	for i := range in.data {
		in.data[i].Length &^= prm.StartPadding
		room += uint64(in.data[i].Length)
	}
	if room < uint64(len(frame)) {
		return false, nil
	}
	for _, d := range in.data {
		n := int(min(uint64(len(frame)), uint64(d.Length)))
		if n == 0 {
			continue
		}
		addr, err := p.cfg.Resolve(d.LKey, d.Addr, uint64(n))
		if err != nil {
			return false, err
		}
		if err := p.cfg.Memory.Write(addr, frame[:n]); err != nil {
			return false, err
		}
		frame = frame[n:]
	}
	return true, nil
}
