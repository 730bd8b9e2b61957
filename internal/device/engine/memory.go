package engine

import (
	"errors"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// transfer is the memory of one message: ranges of regions and memory keys, one
// after the other, open for reading (a roce.Source and Viewer) or for writing
// (a roce.Sink and Placer). A request of this side names a list of ranges, a
// peer only one range. Bytes for memory that can only be copied go to the QP's
// scatter.
//
// A transfer is used under the transport's lock of its QP.
type transfer struct {
	qp      *QP
	pd      *PD // the PD in which keys are looked up
	side    side
	pieces  []piece
	streams int       // number of pieces that are streams, which must be closed
	current int       // index of the piece that was used last, where the next access most likely is
	written uint64    // bytes that Write and Placed took
	signed  bool      // a signature is checked on the way
	err     error     // the first error, which becomes the reason of the completion
	refused error     // error of a failed open, returned for the first byte
	list    mkey.List // argument for opening a stream
}

// side is the party that makes the access. It decides which error the transport
// gets.
type side uint8

const (
	requester side = iota // a send request of this side
	receiver              // a receive request of this side
	remote                // an RDMA READ or WRITE of the peer
)

// piece is one range of a transfer: inline data, a part of a region, or a
// stream. A stream is that of a memory key or, for reading, of consecutive
// regions that are not slices.
type piece struct {
	start, length uint64 // position and length in the message
	inline        []byte
	region        *Region
	addr          uint64      // address of the range in the region
	need          rdma.Access // right that the region must grant
	key           *MKey       // key of the stream; nil for windows and regions
	tx            keydoor.TX
	rx            keydoor.RX
}

// begin makes t the transfer of a message without memory. t must be closed.
func (t *transfer) begin(qp *QP, s side) {
	t.qp, t.pd, t.side = qp, qp.pd, s
	t.current, t.written, t.signed, t.err, t.refused = 0, 0, false, nil, nil
}

func (t *transfer) openInline(data []byte) {
	t.add(uint64(len(data))).inline = data
}

// mode says how a range is opened.
type mode uint8

const (
	reading       mode = iota
	writing            // exactly as many bytes as the list has
	writingAtMost      // up to that many
)

// open opens the ranges of a list. It returns all errors that must occur before
// the first byte is transferred.
func (t *transfer) open(sges []rdma.SGE, m mode) error {
	t.qp.touch()
	err := t.openAll(sges, m)
	if err != nil {
		t.err = err
		t.close() // nothing was moved yet, so nothing is reported
	}
	return err
}

// openAnswer opens the ranges for the answer of the peer to a READ or an
// atomic. An adapter uses them when the answer arrives: a request that the peer
// refuses fails with the peer's reason, even if its own memory is invalid.
// openAnswer therefore refuses only invalid lengths.
func (t *transfer) openAnswer(sges []rdma.SGE) error {
	err := t.open(sges, writing)
	if err == nil || localStatus(err) != rdma.StatusLocProtErr {
		return err
	}
	t.err, t.refused = nil, err
	return nil
}

func (t *transfer) openAll(sges []rdma.SGE, m mode) error {
	t.list = t.list[:0]
	for _, s := range sges {
		if s.Length == 0 {
			continue
		}
		e, err := t.pd.lookup(s.LKey)
		if err != nil {
			return err
		}
		if m == reading && e.region != nil && !e.region.isSlice() {
			t.list = append(t.list, mkey.Segment{Memory: e.region, Addr: s.Addr, Length: uint64(s.Length)})
			continue
		}
		if err := t.openList(0); err != nil {
			return err
		}
		if m != reading && e.mkey != nil {
			if err := t.qp.scatter.write(); err != nil { // the stream writes after it
				return err
			}
		}
		if err := t.add(uint64(s.Length)).open(t.qp, e, s, m); err != nil {
			return err
		}
		if e.mkey != nil {
			t.streams++
			t.signed = t.signed || e.mkey.Flags()&mkey.BlockSignature != 0
		}
	}
	return t.openList(0)
}

// add adds a piece at the end of the message. The capacity after t.pieces is zero, because
// close has cleared it.
func (t *transfer) add(length uint64) *piece {
	n := len(t.pieces)
	if n == cap(t.pieces) {
		t.pieces = append(t.pieces, piece{})
	} else {
		t.pieces = t.pieces[:n+1]
	}
	p := &t.pieces[n]
	p.length = length
	if n > 0 {
		p.start = t.pieces[n-1].start + t.pieces[n-1].length
	}
	return p
}

// openList opens t.list for reading, if it is not empty, as one piece.
func (t *transfer) openList(need rdma.Access) (err error) {
	if len(t.list) == 0 {
		return nil
	}
	var length uint64
	for i := range t.list {
		length += t.list[i].Length
	}
	p := t.add(length)
	t.streams++
	p.tx, err = keydoor.ListTX(&t.list, need)
	clear(t.list)
	t.list = t.list[:0]
	return err
}

// need returns the right that a region must grant.
func (m mode) need() rdma.Access {
	if m == reading {
		return 0
	}
	return rdma.LocalWrite
}

// open opens a range for the local side.
func (p *piece) open(qp *QP, e keyEntry, s rdma.SGE, m mode) (err error) {
	switch {
	case e.region != nil:
		return p.openRegion(e.region, s.Addr, m.need())
	case e.mkey == nil:
		return wrongKey("key %#x is a memory window, which only a peer may use", s.LKey)
	}
	p.key = e.mkey
	door := e.mkey.door
	switch m {
	case reading:
		p.tx, err = door.TX(s.Addr, p.length)
	case writing:
		p.rx, err = door.RX(s.Addr, p.length)
	default:
		p.rx, err = door.RXUpTo(s.Addr, p.length)
	}
	if err != nil {
		return e.mkey.explain(err)
	}
	if m != writingAtMost { // a message may be shorter than its receive request
		p.tellRest(qp, s.Addr)
	}
	return nil
}

// tellRest tells the front if the piece ends inside a block of a signed key: its last bytes have no signature
// field, so that nothing checks them.
func (p *piece) tellRest(qp *QP, addr uint64) {
	if qp.trace == nil || p.key == nil || p.key.Flags()&mkey.BlockSignature == 0 {
		return
	}
	if rest := p.key.door.Rest(addr, p.length); rest != 0 {
		qp.trace.Unchecked(p.key, rest)
	}
}

func (p *piece) openRegion(r *Region, addr uint64, need rdma.Access) error {
	p.region, p.addr, p.need = r, addr, need
	return r.Reach(addr, p.length, need)
}

// openRemote opens the range that a peer names. reported is 0, or for a READ that is repeated
// a result of checked: bad blocks up to it are not reported again.
func (t *transfer) openRemote(rkey uint32, addr uint64, length uint32, need rdma.Access, reported uint64) error {
	t.qp.touch()
	e, err := t.pd.lookup(rkey)
	if err != nil {
		return err
	}
	if need == rdma.RemoteRead && e.region != nil && !e.region.isSlice() {
		t.list = append(t.list[:0], mkey.Segment{Memory: e.region, Addr: addr, Length: uint64(length)})
		return t.openList(need)
	}
	p := t.add(uint64(length))
	if e.region != nil {
		return p.openRegion(e.region, addr, need)
	}
	if need == rdma.RemoteWrite {
		if err := t.qp.scatter.write(); err != nil { // the stream writes after it
			return err
		}
	}
	door := keydoor.Key(nil)
	if err := e.checkOwner(t.qp); err != nil {
		return err
	}
	if e.mkey != nil {
		p.key, door = e.mkey, e.mkey.door
	} else {
		door = e.window.door
	}
	t.streams++
	if need == rdma.RemoteRead {
		p.tx, err = door.RemoteTX(addr, p.length, reported>>1, reported != 0)
	} else {
		p.rx, err = door.RemoteRX(addr, p.length)
	}
	if err != nil && p.key != nil {
		return p.key.explain(err)
	}
	if err == nil && reported == 0 {
		p.tellRest(t.qp, addr)
	}
	return err
}

// fail keeps the first error of the transfer, and returns the transport's error for it.
func (t *transfer) fail(p *piece, err error) error {
	if p != nil && p.key != nil {
		err = p.key.explain(err)
	}
	if t.err == nil {
		t.err = err
	}
	switch {
	case t.side == remote:
		return nakOf(err, roce.NAKRemoteAccess).Err()
	case t.side == requester:
		return localStatus(err).Err()
	case errors.Is(err, syscall.EMSGSIZE):
		return roce.NAKInvalidRequest.Err() // the peer sent more than was agreed
	}
	return nakOf(err, roce.NAKRemoteOperational).Err()
}

// localStatus returns the status of a request of this side whose memory was refused.
func localStatus(err error) rdma.Status {
	if errors.Is(err, syscall.EMSGSIZE) {
		return rdma.StatusLocLenErr
	}
	return rdma.StatusLocProtErr
}

// at returns the piece that holds an offset of the message.
func (t *transfer) at(off uint64) *piece {
	if t.current >= len(t.pieces) || off < t.pieces[t.current].start {
		t.current = 0
	}
	for ; t.current < len(t.pieces); t.current++ {
		if p := &t.pieces[t.current]; off < p.start+p.length {
			return p
		}
	}
	return nil
}

// ReadAt implements roce.Source.
func (t *transfer) ReadAt(b []byte, off uint64) error {
	t.qp.touch()
	for len(b) > 0 {
		p := t.at(off)
		if p == nil {
			return t.fail(nil, failure.New("send a message", syscall.EFAULT, "offset %d lies behind the message", off))
		}
		within := off - p.start
		n := min(uint64(len(b)), p.length-within)
		var err error
		switch {
		case p.tx != nil:
			err = p.tx.ReadAt(b[:n], within)
		case p.region != nil:
			var m []byte
			if m, err = p.region.inPlace(p.addr+within, n, p.need); err == nil {
				copy(b, m)
			}
		default:
			copy(b, p.inline[within:within+n])
		}
		if err != nil {
			return t.fail(p, err)
		}
		b, off = b[n:], off+n
	}
	return nil
}

// View implements roce.Viewer.
func (t *transfer) View(off uint64, n int) []byte {
	p := t.at(off)
	if p == nil || off-p.start+uint64(n) > p.length {
		return nil
	}
	t.qp.touch()
	within := off - p.start
	switch {
	case p.tx != nil:
		return p.tx.View(within, n)
	case p.region != nil:
		return p.region.view(p.addr+within, uint64(n), p.need)
	}
	return p.inline[within : within+uint64(n)]
}

// errTooLong is the error for a message that is longer than its receive
// request's memory.
var errTooLong = failure.New("receive a message", syscall.EMSGSIZE, "the message is longer than the receive request")

// Write implements roce.Sink.
func (t *transfer) Write(b []byte) error {
	t.qp.touch()
	if t.refused != nil {
		return t.fail(nil, t.refused)
	}
	for len(b) > 0 {
		p := t.at(t.written)
		if p == nil {
			return t.fail(nil, errTooLong)
		}
		within := t.written - p.start
		n := min(uint64(len(b)), p.length-within)
		var err error
		if p.rx != nil {
			err = p.rx.Write(b[:n])
		} else {
			err = t.store(p, within, b[:n])
		}
		if err != nil {
			return t.fail(p, err)
		}
		b, t.written = b[n:], t.written+n
	}
	return nil
}

// store writes b to a piece that is a part of a region, at an offset of the piece. If the
// memory there can only be copied, b is kept until the batch ends.
func (t *transfer) store(p *piece, within uint64, b []byte) error {
	addr := p.addr + within
	space, at, err := p.region.Space(addr, uint64(len(b)), p.need)
	if err == nil && space != nil {
		t.qp.later(space, at, b, t.side)
		return nil
	}
	for err == nil && len(b) > 0 {
		var m []byte
		m, err = p.region.At(addr, uint64(len(b)), p.need)
		n := copy(m, b)
		addr, b = addr+uint64(n), b[n:]
	}
	return err
}

// Place implements roce.Placer.
func (t *transfer) Place(n int) []byte {
	p := t.at(t.written)
	if p == nil || t.written-p.start+uint64(n) > p.length {
		return nil
	}
	if p.rx != nil {
		return p.rx.Place(n)
	}
	t.qp.touch()
	return p.region.view(p.addr+t.written-p.start, uint64(n), p.need)
}

// Placed implements roce.Placer.
func (t *transfer) Placed(n int) error {
	if p := t.at(t.written); p.rx != nil {
		t.qp.touch()
		if err := p.rx.Placed(n); err != nil {
			return t.fail(p, err)
		}
	}
	t.written += uint64(n)
	return nil
}

// finish ends a message that was written completely. It writes to memory the
// bytes that streams have buffered, and the bytes of a READ that wait for the
// end of the batch.
func (t *transfer) finish() error {
	t.qp.touch()
	if t.side == requester {
		if err := t.qp.scatter.finishRead(); err != nil {
			return t.fail(nil, err)
		}
	}
	for i := range t.pieces {
		if p := &t.pieces[i]; p.rx != nil && p.start <= t.written {
			if err := p.rx.Finish(); err != nil {
				return t.fail(p, err)
			}
		}
	}
	return nil
}

// bad returns how many bad blocks the streams have found so far.
func (t *transfer) bad() (n int) {
	for i := range t.pieces {
		switch p := &t.pieces[i]; {
		case p.tx != nil:
			n += p.tx.Bad()
		case p.rx != nil:
			n += p.rx.Bad()
		}
	}
	return n
}

// badKey returns the number of the first key with a bad block, or 0.
func (t *transfer) badKey() uint32 {
	if t.streams == 0 {
		return 0
	}
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.key != nil && (p.tx != nil && p.tx.Bad() > 0 || p.rx != nil && p.rx.Bad() > 0) {
			return p.key.Number()
		}
	}
	return 0
}

// checked returns how far the blocks of a peer's READ were checked, shifted
// left by one; the lowest bit is set because the READ has then been answered
// before.
func (t *transfer) checked() uint64 {
	if len(t.pieces) == 1 && t.pieces[0].tx != nil {
		return t.pieces[0].tx.Checked()<<1 | 1
	}
	return 1
}

// close closes all streams and returns how many bad blocks they found. If there are any, it
// calls report. qp.mu is held.
func (t *transfer) close() (bad int) {
	if t.streams > 0 {
		bad = t.bad()
		for i := range t.pieces {
			t.pieces[i].close()
		}
	}
	if bad > 0 {
		t.report()
	}
	clear(t.pieces)
	t.pieces, t.streams = t.pieces[:0], 0
	return bad
}

func (p *piece) close() {
	if p.tx != nil {
		p.tx.Close()
	}
	if p.rx != nil {
		p.rx.Close()
	}
}

// report passes the bad-block record of each key to the front, unless it was reported before.
func (t *transfer) report() {
	for i := range t.pieces {
		k := t.pieces[i].key
		if k == nil {
			continue
		}
		if rec, ok := k.door.Unreported().(*mkey.BadBlock); ok {
			t.qp.front.BadSignature(&BadSignature{Key: k, Record: *rec, Recv: t.side != requester})
		}
	}
}
