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

// fusion holds the passes that do the signature and the crypto of a configuration together, one for each direction. They
// exist for T10-DIF on blocks of 512 bytes, in the rows of the table of mlx5dv_wr_set_mkey_crypto(3) that have
// signatures. The column order says whether the signature comes before or after crypto on TX (Crypto.Order). The column
// sealed says whether a field is encrypted in the same data unit as its block:
//
//	row  encrypt_on_tx  order   signature in  bytes of a data unit             sealed
//	B    true           after   wire          512: a block                     no
//	C    true           before  wire          520: a block and wire's field    yes
//	D    true           before  memory        512: a block                     no
//	E    true           before  both          520: a block and wire's field    yes
//	G    false          after   wire          512: a block                     no
//	H    false          after   memory        520: a block and memory's field  yes
//	I    false          after   both          520: a block and memory's field  yes
//	J    false          before  memory        512: a block                     no
type fusion struct {
	tx, rx *fused.Pass
}

// newFusion returns nil if there are no kernels for the configuration.
func newFusion(s *signature, c *Crypto) *fusion {
	if s == nil || c == nil || !fused.Available() || !fusible(s.Memory) || !fusible(s.Wire) {
		return nil
	}
	// The first condition is true in rows C and E, the second one in rows H and I.
	sealed := c.EncryptOnTX && c.Order == SignatureBeforeCrypto && s.Wire != nil ||
		!c.EncryptOnTX && c.Order == SignatureAfterCrypto && s.Memory != nil
	unit := fused.BlockSize
	if sealed {
		unit = fused.UnitSize
	}
	if c.DataUnitSize != unit {
		return nil
	}
	f := &fusion{
		tx: s.pass(s.Memory, s.Wire, s.Checked(MemoryDomain)),
		rx: s.pass(s.Wire, s.Memory, s.Checked(WireDomain)),
	}
	if f.tx == nil || f.rx == nil {
		return nil
	}
	f.tx.Sealed, f.rx.Sealed = sealed, sealed
	f.tx.Decrypt, f.rx.Decrypt = !c.EncryptOnTX, c.EncryptOnTX
	if !f.tx.Valid() || !f.rx.Valid() {
		return nil
	}
	return f
}

// fusible reports whether the kernels support the format. A nil format, of a domain without a signature, is supported.
func fusible(f *sig.Format) bool {
	return f == nil || f.Type == sig.T10DIF && f.Guard == sig.GuardCRC && f.BlockSize == fused.BlockSize
}

// pass returns the pass of one direction, without its crypto. in is the format of the source domain and out that of
// the destination; either is nil for a domain without a signature. check has a bit for each byte of in's field that
// is checked (sig.Mask*).
//
// The kernel generates each byte of out's fields and copies none from in's. So a byte that is to be
// copied must be equal to the generated one whenever the check succeeds: if it may differ, the result
// is nil.
func (s *Signature) pass(in, out *sig.Format, check uint8) *fused.Pass {
	p := new(fused.Pass)
	if in != nil {
		p.Check, p.In = true, fusedTags(in)
		if in.Flags&sig.IgnoreGuard != 0 {
			check &^= sig.MaskGuard
		}
		if in.Flags&sig.IgnoreRef != 0 {
			check &^= sig.MaskRef
		}
		for i := range fused.FieldSize {
			if check&(0x80>>i) != 0 {
				p.Mask |= 0xFF << (8 * i)
			}
		}
		// Byte 0 of a field is the lowest byte of Mask. The application tag is its bytes 2 and 3.
		p.Mask &^= uint64(^bits.ReverseBytes16(appMask(in))) << 16
		// The kernel does not recognize escape values, and finds a bad field in a block with one. Package sig,
		// which recognizes them, then checks the block again.
	}
	if out != nil {
		p.Generate, p.Out = true, fusedTags(out)
	}
	if in == nil || out == nil {
		return p
	}
	copied := s.CopyMask
	if s.Flags&UseCopyMask == 0 {
		copied = sig.DefaultCopyMask(*in, *out)
	}
	switch sameRef := uint32(p.In.Tag) == uint32(p.Out.Tag) && p.In.Step == p.Out.Step; {
	case copied&^check != 0,
		copied&sig.MaskGuard != 0 && p.In.Ones != p.Out.Ones,
		copied&sig.MaskApp != 0 && (in.AppTag != out.AppTag || appMask(in) != 0xFFFF),
		copied&sig.MaskRef != 0 && !sameRef:
		return nil
	}
	return p
}

// fusedTags returns the tags of block 0 in the kernels' form.
func fusedTags(f *sig.Format) fused.Tags {
	t := fused.Tags{Tag: uint64(f.AppTag)<<32 | uint64(f.RefTag), Ones: f.Seed == sig.SeedOnes}
	if f.Remaps() {
		t.Step = 1
	}
	return t
}

// appMask returns the bits of the application tag that are checked.
func appMask(f *sig.Format) uint16 {
	switch {
	case f.Flags&sig.IgnoreApp != 0:
		return 0
	case f.AppMask == 0:
		return 0xFFFF
	}
	return f.AppMask
}

// schedule returns the expanded keys of t's cipher, or nil if there is no fused kernel for
// them or the configuration.
func (t *transfer) schedule() *fused.Schedule {
	if t.plan.fuse == nil {
		return nil
	}
	return (*fused.Schedule)(aesxts.ScheduleOf(t.cipher))
}

// fusedRun is the state of one call of a fused kernel, for at most fused.MaxUnits units. A unit in memory is a block,
// followed by its field if memory has fields.
type fusedRun struct {
	kernel fused.Run
	pass   fused.Pass // with the tags of the run's first block

	// joined has room for each unit that lies in more than one piece of memory. The kernel gathers and scatters units
	// in two pieces. join gathers a unit in more pieces, or adds them to parts, from which scatter scatters them.
	joined [fused.MaxSplits][fused.UnitSize]byte
	parts  []part
}

// part is a piece of memory, and the bytes of joined that scatter copies to it.
type part struct {
	joined []byte
	memory []byte
}

var fusedRuns = sync.Pool{New: func() any { return new(fusedRun) }}

// begin prepares a run of n units, the first of which is number.
func (s *fusedRun) begin(t *transfer, p *fused.Pass, number uint64, n int) {
	tweak := t.plan.crypto.InitialTweak.Add(number)
	s.kernel.N, s.kernel.Lo, s.kernel.Hi = n, tweak.Lo, tweak.Hi
	s.pass = *p
	s.pass.In, s.pass.Out = p.In.From(number), p.Out.From(number)
}

// reset drops the references to the memory that was used.
func (s *fusedRun) reset() {
	s.kernel.Reset()
	clear(s.parts)
	s.parts = s.parts[:0]
}

// end ends the run.
func (s *fusedRun) end() {
	s.reset()
	fusedRuns.Put(s)
}

// places sets Run.Places, the addresses of the run's units. The units have size bytes each and begin at position pos of
// the memory. The address of a unit in one piece is that of the piece; a unit in several pieces gets room in joined.
// Before the run has more than MaxSplits units in several pieces, it ends: places then lowers Run.N.
//
// The error is errNoAddress if some of the memory has no address in this process.
func (s *fusedRun) places(c *cursor, size int, pos uint64) error {
	n, joined := s.kernel.N, 0
	end := pos + uint64(n*size)
	var b []byte // the remainder of the piece of memory at pos; empty: to be looked up
	for i := 0; i < n; {
		if len(b) == 0 {
			var err error
			if b, err = c.mapped(pos, end-pos); err != nil {
				return err
			}
		}
		if whole := len(b) / size; whole > 0 {
			first := unsafe.Pointer(unsafe.SliceData(b))
			places := s.kernel.Places[i : i+whole]
			for k := range places {
				places[k] = (*byte)(unsafe.Add(first, k*size))
			}
			i += whole
			pos += uint64(whole * size)
			b = b[whole*size:]
		}
		if len(b) == 0 {
			continue
		}
		if joined == len(s.joined) {
			s.kernel.N = i
			break
		}
		var err error
		if b, err = s.split(c, i, s.joined[joined][:size], b, pos, end); err != nil {
			return err
		}
		joined++
		pos += uint64(size)
		i++
	}
	return nil
}

// mapped is at for memory with an address in this process. For other memory, which can only be copied, the error is
// errNoAddress.
func (c *cursor) mapped(pos, n uint64) ([]byte, error) {
	b, err := c.at(pos, n)
	if err == nil && len(b) == 0 {
		err = errNoAddress
	}
	return b, err
}

// split sets the address of unit i, which lies in several pieces of memory, to room. The unit begins at pos with the
// piece first; the run's memory ends at end. If the unit has two pieces, split leaves them to the kernel (Run.Split). If
// it has more, split joins them. rest is the part of the last piece that belongs to the next units.
func (s *fusedRun) split(c *cursor, i int, room, first []byte, pos, end uint64) (rest []byte, err error) {
	at := len(first)
	b, err := c.mapped(pos+uint64(at), end-pos-uint64(at))
	if err != nil {
		return nil, err
	}
	if n := len(room) - at; n <= len(b) {
		s.kernel.Split(i, &room[0], first, b[:n])
		return b[n:], nil
	}
	s.kernel.Places[i] = &room[0]
	s.join(room[:at], first, c.need)
	for {
		n := min(len(b), len(room)-at)
		s.join(room[at:at+n], b[:n], c.need)
		if at += n; at == len(room) {
			return b[n:], nil
		}
		if b, err = c.mapped(pos+uint64(at), end-pos-uint64(at)); err != nil {
			return nil, err
		}
	}
}

// join copies a piece of memory to joined if the memory is read, so need is 0. If the memory is written, join records the
// piece for scatter.
func (s *fusedRun) join(joined, memory []byte, need rdma.Access) {
	if need == 0 {
		copy(joined, memory)
	} else {
		s.parts = append(s.parts, part{joined, memory})
	}
}

// errNoAddress says that memory has no address in this process. The run then uses a buffer.
var errNoAddress = errors.New("mkey: memory that can only be copied")

// buffered is places for a buffer: it sets the addresses of the units, of size bytes each, to consecutive ones in b. It
// lowers Run.N if b has room for fewer units.
func (s *fusedRun) buffered(b *buffer, size int) {
	s.kernel.N = min(s.kernel.N, len(b)/size)
	for i := range s.kernel.N {
		s.kernel.Places[i] = &b[i*size]
	}
}

// scatter copies the units in more than two pieces of memory from joined to these pieces, after the kernel has written
// joined.
func (s *fusedRun) scatter() {
	for _, p := range s.parts {
		copy(p.memory, p.joined)
	}
}

// report checks the fields of a run again, after the kernel found that some are bad, and reports the bad blocks to b.
// number is the number of the run's first block. The checked blocks are consecutive in linear. If linear is nil, they are
// at Run.Places.
func (s *fusedRun) report(b *blocks, t *sig.Transform, number uint64, linear []byte) {
	n, fields := s.kernel.N, s.kernel.Fields[:]
	at := sig.Blocks{Data: linear, DataStride: fused.BlockSize, FieldStride: fused.FieldSize}
	switch {
	case linear != nil && s.pass.Sealed:
		at.Fields = unsafe.Slice(&fields[0][0], fused.FieldSize*n)
		t.Run(at, at, n, number, b)
		return
	case linear != nil:
		at = b.blocksIn(linear, b.in)
		t.Run(at, at, n, number, b)
		return
	}
	for i := range n {
		if s.pass.Sealed {
			at.Data, at.Fields = unsafe.Slice(s.kernel.Places[i], fused.BlockSize), fields[i][:]
		} else {
			at = b.blocksIn(unsafe.Slice(s.kernel.Places[i], fused.UnitSize), b.in)
		}
		t.Run(at, at, 1, number+uint64(i), b)
	}
}

// txFused is the topmost layer of a TX that does signature and crypto in one pass. The layers below it, slow, do them in
// separate passes. They process incomplete units, and runs with a bad field if fields are generated.
type txFused struct {
	slow   puller
	job    *transfer
	pass   *fused.Pass
	keys   *fused.Schedule
	memory *gather
	strip  *txSig
}

func (l *txFused) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txFused) pull(p []byte, pos uint64) error {
	out := uint64(l.pass.OutSize())
	b := &l.strip.blocks
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
			n, err = l.units(p, number, min(uint64(len(p))/out, b.end-number, fused.MaxUnits))
			n *= out
		}
		if err != nil {
			return err
		}
		p, pos = p[n:], pos+n
	}
	return nil
}

// units processes at most n units, of which number is the first, and writes them to p. It returns how many it processed.
func (l *txFused) units(p []byte, number, n uint64) (uint64, error) {
	s := fusedRuns.Get().(*fusedRun)
	s.begin(l.job, l.pass, number, int(n))
	defer s.end()
	in, out := l.pass.InSize(), l.pass.OutSize()
	pos := number * uint64(in)
	if err := s.places(&l.memory.cursor, in, pos); err == errNoAddress {
		s.reset()
		s.begin(l.job, l.pass, number, int(n))
		buf := borrow()
		defer buffers.Put(buf)
		s.buffered(buf, in)
		if err := l.memory.pull(buf[:s.kernel.N*in], pos); err != nil {
			return 0, err
		}
	} else if err != nil {
		return 0, err
	}
	n = uint64(s.kernel.N)
	diff := s.kernel.From(l.keys, &s.pass, p)
	switch {
	case !s.pass.Check:
		return n, nil
	case diff != 0 && s.pass.Generate:
		// The copy mask may copy bytes of a bad field to the generated field, which the kernel does not do.
		return n, l.slow.pull(p[:n*uint64(out)], number*uint64(out))
	case diff != 0 && s.pass.Sealed:
		s.report(&l.strip.blocks, l.strip.sig, number, p)
	case diff != 0:
		s.report(&l.strip.blocks, l.strip.sig, number, nil)
	}
	l.strip.blocks.seen.add(number, number+n)
	return n, nil
}

// rxFused is the topmost layer of an RX that does signature and crypto in one pass. It uses slow as txFused does.
type rxFused struct {
	slow   pusher
	job    *transfer
	pass   *fused.Pass
	keys   *fused.Schedule
	memory *scatter
	crypt  *rxCrypt
	strip  *rxSig
}

func (l *rxFused) finish() error { return l.slow.finish() }

func (l *rxFused) push(p []byte) error {
	in := l.pass.InSize()
	for len(p) > 0 {
		// n is the number of bytes of an incomplete unit that the layers below hold. At most one of them holds any.
		n := l.crypt.have + l.strip.have
		var err error
		switch {
		case n != 0 || len(p) < in:
			n = min(len(p), in-n)
			err = l.slow.push(p[:n])
		default:
			n, err = l.units(p, min(len(p)/in, fused.MaxUnits))
			n *= in
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// units processes at most n units of p, and returns how many it processed.
func (l *rxFused) units(p []byte, n int) (int, error) {
	number := l.strip.number
	s := fusedRuns.Get().(*fusedRun)
	s.begin(l.job, l.pass, number, n)
	defer s.end()
	out := l.pass.OutSize()
	var buf *buffer
	if err := s.places(&l.memory.cursor, out, l.memory.pos); err == errNoAddress {
		s.reset()
		s.begin(l.job, l.pass, number, n)
		buf = borrow()
		defer buffers.Put(buf)
		s.buffered(buf, out)
	} else if err != nil {
		return 0, err
	}
	n = s.kernel.N
	diff := s.kernel.To(l.keys, &s.pass, p)
	switch {
	case diff != 0 && s.pass.Generate:
		// The copy mask may copy bytes of a bad field to the generated field, which the kernel does not do.
		return n, l.slow.push(p[:n*l.pass.InSize()])
	case diff != 0 && s.pass.Sealed:
		s.report(&l.strip.blocks, l.strip.sig, number, nil)
	case diff != 0:
		s.report(&l.strip.blocks, l.strip.sig, number, p)
	}
	if s.pass.Check {
		l.strip.blocks.seen.add(number, number+uint64(n))
	}
	if buf != nil {
		if err := l.memory.push(buf[:n*out]); err != nil {
			return 0, err
		}
	} else {
		s.scatter()
		l.memory.pos += uint64(n * out)
	}
	l.strip.number += uint64(n)
	l.crypt.number += uint64(n)
	return n, nil
}
