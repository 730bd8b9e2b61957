package mkey

import (
	"errors"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/internal/base/kernel/fused"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// fusion holds the parameters of the kernels that do signature and crypto in one pass. They
// serve rows C and H with data units that are a block of 512 bytes with its T10-DIF field.
type fusion struct {
	tag  uint64 // application tag << 32 | reference tag, of block 0
	step uint32 // increment of the reference tag from block to block
	ones bool   // the guard's seed is all ones
	mask uint64 // the bits of a field that are checked, in the byte order of memory
}

// newFusion returns nil if there is no kernel for the configuration.
func newFusion(s *signature, c *Crypto) *fusion {
	if s == nil || c == nil || c.DataUnitSize != fused.UnitSize || !fused.Available() {
		return nil
	}
	var f *sig.Format
	var check uint8
	switch {
	case c.EncryptOnTX && c.Order == SignatureBeforeCrypto && s.Memory == nil: // C
		f, check = s.Wire, s.Checked(WireDomain)
	case !c.EncryptOnTX && c.Order == SignatureAfterCrypto && s.Wire == nil: // H
		f, check = s.Memory, s.Checked(MemoryDomain)
	default:
		return nil
	}
	if f.Type != sig.T10DIF || f.Guard != sig.GuardCRC || f.BlockSize != fused.BlockSize {
		return nil
	}
	u := &fusion{tag: uint64(f.AppTag)<<32 | uint64(f.RefTag), ones: f.Seed == sig.SeedOnes}
	if f.Flags&sig.RefRemap != 0 || f.Flags&^sig.IgnoreApp == 0 {
		u.step = 1
	}
	for i := range fused.FieldSize {
		if check&(0x80>>i) != 0 {
			u.mask |= 0xFF << (8 * i)
		}
	}
	app := f.AppMask
	if app == 0 && f.Flags&sig.IgnoreApp == 0 {
		app = 0xFFFF
	}
	u.mask &^= uint64(^bits.ReverseBytes16(app)) << 16
	// The kernel does not support escapes. If a field differs, package sig
	// checks the block again.
	return u
}

// schedule returns the expanded keys of t's cipher, or nil if there is no fused kernel for
// them or the configuration.
func (t *transfer) schedule() *fused.Schedule {
	if t.plan.fuse == nil {
		return nil
	}
	if p := aesxts.ScheduleOf(t.cipher); p != nil {
		return fused.ScheduleAt(p)
	}
	return nil
}

// sealer is the state of one run of units. A unit in memory is a block, with its field if
// memory has fields.
type sealer struct {
	run fused.Run

	// joined has a copy of each unit that lies in more than one piece of memory. The kernel
	// itself gathers and scatters a unit in two pieces. A unit in more pieces is gathered
	// by join, and scattered by scatter according to parts.
	joined [fused.MaxSplits][fused.UnitSize]byte
	parts  []part
}

// part is a piece of memory and the part of joined that belongs there.
type part struct {
	joined []byte
	memory []byte
}

var sealers = sync.Pool{New: func() any { return new(sealer) }}

// begin prepares a run of n units, the first of which is number.
func (s *sealer) begin(t *transfer, number uint64, n int) {
	u, r := t.plan.fuse, &s.run
	tweak := t.plan.crypto.InitialTweak.Add(number)
	r.N, r.Lo, r.Hi = n, tweak.Lo, tweak.Hi
	r.Tag = u.tag&(0xFFFF<<32) | uint64(uint32(u.tag)+u.step*uint32(number))
	r.Step, r.Ones = u.step, u.ones
}

// reset drops the references to the memory that was used.
func (s *sealer) reset() {
	s.run.Reset()
	clear(s.parts)
	s.parts = s.parts[:0]
}

// end ends the run.
func (s *sealer) end() {
	s.reset()
	sealers.Put(s)
}

// places sets the addresses of the run's units, of size bytes each, in memory
// from pos on. A unit in one piece is used in place, the others are joined. The
// run becomes shorter if it has more than MaxSplits joined units.
//
// The error is errCopied if some of the memory can only be copied.
func (s *sealer) places(c *cursor, size int, pos uint64) error {
	n, places, joined := s.run.N, &s.run.Places, 0
	for i := 0; i < n; {
		b, err := c.at(pos, uint64((n-i)*size))
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return errCopied
		}
		whole := places[i : i+len(b)/size]
		for k := range whole {
			whole[k] = &b[k*size]
		}
		i += len(whole)
		pos += uint64(len(whole) * size)
		if b = b[len(whole)*size:]; len(b) == 0 {
			continue
		}
		if joined == len(s.joined) {
			s.run.N = i
			break
		}
		if err := s.split(c, i, s.joined[joined][:size], b, pos); err != nil {
			return err
		}
		joined++
		pos += uint64(size)
		i++
	}
	return nil
}

// split joins unit i, which lies at pos in several pieces, in room. first is the first
// piece.
func (s *sealer) split(c *cursor, i int, room, first []byte, pos uint64) error {
	at := len(first)
	b, err := c.at(pos+uint64(at), uint64(len(room)-at))
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return errCopied
	}
	if at+len(b) == len(room) {
		s.run.Split(i, &room[0], first, b)
		return nil
	}
	s.run.Places[i] = &room[0]
	s.join(room[:at], first, c.need)
	for {
		s.join(room[at:], b, c.need)
		if at += len(b); at == len(room) {
			return nil
		}
		if b, err = c.at(pos+uint64(at), uint64(len(room)-at)); err != nil {
			return err
		}
		if len(b) == 0 {
			return errCopied
		}
	}
}

// join gathers a piece of memory that is read. A piece that is written is left to scatter.
func (s *sealer) join(joined, memory []byte, need rdma.Access) {
	if need == 0 {
		copy(joined, memory)
	} else {
		s.parts = append(s.parts, part{joined, memory})
	}
}

// errCopied makes a run use a buffer instead of the memory.
var errCopied = errors.New("mkey: memory that can only be copied")

// buffered sets the addresses of the units of a run that was just begun, of size bytes each,
// to consecutive ones in a buffer. The run may become shorter.
func (s *sealer) buffered(b *buffer, size int) {
	s.run.N = min(s.run.N, len(b)/size)
	for i := range s.run.N {
		s.run.Places[i] = &b[i*size]
	}
}

// scatter writes the units in more than two pieces.
func (s *sealer) scatter() {
	for _, p := range s.parts {
		copy(p.memory, p.joined)
	}
}

// report checks the fields of a run one by one, after the kernel found that some differ. The
// blocks are in line, or at the run's places if line is nil.
func (s *sealer) report(b *blocks, t *sig.Transform, number uint64, line []byte) {
	fields := unsafe.Slice(&s.run.Fields[0][0], fused.FieldSize*s.run.N)
	at := sig.Blocks{Data: line, DataStride: fused.BlockSize, Fields: fields, FieldStride: fused.FieldSize}
	if line != nil {
		t.Run(at, at, s.run.N, number, b)
		return
	}
	for i := range s.run.N {
		at.Data = unsafe.Slice(s.run.Places[i], fused.BlockSize)
		at.Fields = s.run.Fields[i][:]
		t.Run(at, at, 1, number+uint64(i), b)
	}
}

// txFused is the topmost layer of a TX that does signature and crypto in one pass. Parts of
// units go through the layers below.
type txFused struct {
	slow    puller
	job     *transfer
	keys    *fused.Schedule
	memory  *gather
	sig     *txSig
	encrypt bool
	in, out int // length of a unit in memory and on the wire
}

func (l *txFused) open(slow puller, job *transfer, keys *fused.Schedule, memory *gather, strip *txSig) {
	*l = txFused{slow: slow, job: job, keys: keys, memory: memory, sig: strip, encrypt: job.plan.crypto.EncryptOnTX}
	l.in, l.out = fused.UnitSize, fused.BlockSize
	if l.encrypt {
		l.in, l.out = l.out, l.in
	}
}

func (l *txFused) close() { *l = txFused{} }

func (l *txFused) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txFused) pull(p []byte, pos uint64) error {
	out := uint64(l.out)
	b := &l.sig.blocks
	for len(p) > 0 {
		number, within := pos/out, pos%out
		var n uint64
		var err error
		switch {
		case number >= b.end:
			n = uint64(len(p))
			err = l.slow.pull(p, pos)
		case within != 0 || uint64(len(p)) < out:
			n = min(uint64(len(p)), out-within)
			err = l.slow.pull(p[:n], pos)
		default:
			n, err = l.run(p, number, min(uint64(len(p))/out, b.end-number, fused.MaxUnits))
			n *= out
		}
		if err != nil {
			return err
		}
		p, pos = p[n:], pos+n
	}
	return nil
}

// run produces at most n units from unit number on, and returns how many it produced.
func (l *txFused) run(p []byte, number, n uint64) (uint64, error) {
	s := sealers.Get().(*sealer)
	s.begin(l.job, number, int(n))
	defer s.end()
	pos := number * uint64(l.in)
	if err := s.places(&l.memory.cursor, l.in, pos); err == errCopied {
		s.reset()
		s.begin(l.job, number, int(n))
		buf := borrow()
		defer buffers.Put(buf)
		s.buffered(buf, l.in)
		if err := l.memory.pull(buf[:s.run.N*l.in], pos); err != nil {
			return 0, err
		}
	} else if err != nil {
		return 0, err
	}
	n = uint64(s.run.N)
	if l.encrypt {
		s.run.Encrypt(l.keys, p)
		return n, nil
	}
	if s.run.Decrypt(l.keys, p, l.job.plan.fuse.mask) != 0 {
		s.report(&l.sig.blocks, l.sig.run, number, p)
	}
	l.sig.blocks.seen.add(number, number+n)
	return n, nil
}

// rxFused is the topmost layer of an RX that does signature and crypto in one pass.
type rxFused struct {
	slow    pusher
	job     *transfer
	keys    *fused.Schedule
	memory  *scatter
	crypt   *rxCrypt
	sig     *rxSig
	encrypt bool
	in, out int // length of a unit on the wire and in memory
}

func (l *rxFused) open(slow pusher, job *transfer, keys *fused.Schedule, memory *scatter, crypt *rxCrypt, strip *rxSig) {
	*l = rxFused{slow: slow, job: job, keys: keys, memory: memory, crypt: crypt, sig: strip, encrypt: !job.plan.crypto.EncryptOnTX}
	l.in, l.out = fused.UnitSize, fused.BlockSize
	if l.encrypt {
		l.in, l.out = l.out, l.in
	}
}

func (l *rxFused) close() { *l = rxFused{} }

func (l *rxFused) finish() error { return l.slow.finish() }

func (l *rxFused) push(p []byte) error {
	for len(p) > 0 {
		// Either both layers below are at a boundary, or only one of them keeps a part.
		n := l.crypt.have + l.sig.have
		var err error
		switch {
		case n != 0 || len(p) < l.in:
			n = min(len(p), l.in-n)
			err = l.slow.push(p[:n])
		default:
			n, err = l.run(p, min(len(p)/l.in, fused.MaxUnits))
			n *= l.in
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// run takes at most n units and returns how many it took.
func (l *rxFused) run(p []byte, n int) (int, error) {
	number := l.sig.number
	s := sealers.Get().(*sealer)
	s.begin(l.job, number, n)
	defer s.end()
	var buf *buffer
	if err := s.places(&l.memory.cursor, l.out, l.memory.pos); err == errCopied {
		s.reset()
		s.begin(l.job, number, n)
		buf = borrow()
		defer buffers.Put(buf)
		s.buffered(buf, l.out)
	} else if err != nil {
		return 0, err
	}
	n = s.run.N
	if l.encrypt {
		s.run.EncryptTo(l.keys, p)
	} else {
		if s.run.DecryptTo(l.keys, p, l.job.plan.fuse.mask) != 0 {
			s.report(&l.sig.blocks, l.sig.run, number, nil)
		}
		l.sig.blocks.seen.add(number, number+uint64(n))
	}
	if buf != nil {
		if err := l.memory.push(buf[:n*l.out]); err != nil {
			return 0, err
		}
	} else {
		s.scatter()
		l.memory.pos += uint64(n * l.out)
	}
	l.sig.number += uint64(n)
	l.crypt.number += uint64(n)
	return n, nil
}
