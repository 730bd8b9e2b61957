package mkeytest

import (
	"encoding/binary"

	"github.com/softmkey/softmkey/internal/base/kernel/ref"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// Oracle transforms streams as the specification describes it: one block and one data
// unit at a time, with signatures computed bit by bit. It supports no layouts, and finds
// every position by walking from the beginning of the stream.
type Oracle struct {
	Signature *mkey.Signature
	Crypto    *mkey.Crypto
	Cipher    *xts.Cipher // the cipher of Crypto.DEK
}

// TX returns the wire domain for the bytes of the memory domain, and the bad blocks of the
// memory domain. ok is false for a length that AES-XTS cannot process.
func (o *Oracle) TX(memory []byte) (wire []byte, bad []sig.Error, ok bool) {
	return o.tx(memory, 0, -1)
}

// RX returns the memory domain for the bytes of the wire domain, and the bad blocks of the
// wire domain. ok is false for a length that AES-XTS cannot process.
func (o *Oracle) RX(wire []byte) (memory []byte, bad []sig.Error, ok bool) {
	memory, _, bad, ok = o.rx(wire, 0)
	return memory, bad, ok
}

// TXAt is TX for a transfer of length wire bytes from an offset. memory is the whole
// memory domain, which must be long enough. ok is also false if no transfer may begin at
// the offset.
func (o *Oracle) TXAt(memory []byte, offset, length int) (wire []byte, bad []sig.Error, ok bool) {
	data, from, to, ok := o.Range(offset, length)
	if !ok {
		return nil, nil, false
	}
	return o.tx(memory[from:to], data, length)
}

// RXAt is RX for a transfer of wire bytes to an offset. It writes to memory, the whole
// memory domain, which must be long enough. ok is also false if no transfer may begin at
// the offset.
func (o *Oracle) RXAt(memory []byte, offset int, wire []byte) (bad []sig.Error, ok bool) {
	data, from, to, ok := o.Range(offset, len(wire))
	if !ok {
		return nil, false
	}
	out, hole, bad, ok := o.rx(wire, data)
	if ok {
		// An incomplete first block keeps its field.
		n := copy(memory[from:to], out[:hole])
		if hole < len(out) {
			_, field := o.memory()
			copy(memory[from+n+field:to], out[hole:])
		}
	}
	return bad, ok
}

// Range describes a transfer of length wire bytes from an offset: the bytes of data
// before it, and its range from..to-1 of the memory domain. ok is false if no transfer
// may begin at the offset.
func (o *Oracle) Range(offset, length int) (data, from, to int, ok bool) {
	memBlock, memField := o.memory()
	wireBlock, wireField := o.wire()
	block, rest, _ := walk(offset, wireBlock, wireField)
	data = block*wireBlock + rest
	ok = rest == 0
	from = position(data, memBlock, memField)
	if o.Crypto != nil {
		start := offset
		if o.cryptoFirst() {
			start = from
			ok = ok && (memField == 0 || data%memBlock == 0)
		}
		ok = ok && start%o.Crypto.DataUnitSize == 0
	}
	block, rest, inField := walk(offset+length, wireBlock, wireField)
	end := block*wireBlock + rest
	to = position(end, memBlock, memField)
	if wireField > 0 && rest == wireBlock && inField == 0 && end%memBlock == 0 {
		// The last block has its data but no part of its field: it is incomplete.
		to -= memField
	}
	return data, from, to, ok
}

// memory and wire return the lengths of a domain's blocks and fields. A domain without a
// signature has the other domain's blocks.
func (o *Oracle) memory() (block, field int) { return o.domain(true) }
func (o *Oracle) wire() (block, field int)   { return o.domain(false) }

func (o *Oracle) domain(memory bool) (block, field int) {
	if o.Signature == nil {
		return 1, 0
	}
	this, other := o.Signature.Memory, o.Signature.Wire
	if !memory {
		this, other = other, this
	}
	if this == nil {
		return other.BlockSize, 0
	}
	return this.BlockSize, this.FieldSize()
}

// walk returns the position pos bytes into a stream: the number of the block, and the
// bytes of its data and of its field before the position. The end of a block without a
// field is the beginning of the next block.
func walk(pos, block, field int) (number, data, inField int) {
	if field == 0 {
		return pos / block, pos % block, 0
	}
	for pos >= block+field {
		pos -= block + field
		number++
	}
	return number, min(pos, block), pos - min(pos, block)
}

// position returns the stream offset of the byte after data bytes of data.
func position(data, block, field int) (pos int) {
	if field == 0 {
		return data
	}
	for data >= block {
		data -= block
		pos += block + field
	}
	return pos + data
}

// tx transforms the memory of a transfer that begins after start bytes of data. It
// truncates the result to a length that is not negative.
func (o *Oracle) tx(memory []byte, start, length int) (wire []byte, bad []sig.Error, ok bool) {
	s := append([]byte(nil), memory...)
	block, field := o.memory()
	if o.cryptoFirst() && !o.crypt(s, position(start, block, field), o.Crypto.EncryptOnTX) {
		return nil, nil, false
	}
	s, _, bad = o.sign(s, start, true)
	if length >= 0 {
		s = s[:length]
	}
	block, field = o.wire()
	if o.Crypto != nil && !o.cryptoFirst() && !o.crypt(s, position(start, block, field), o.Crypto.EncryptOnTX) {
		return nil, nil, false
	}
	return s, bad, true
}

// rx transforms the wire bytes of a transfer that begins after start bytes of data. The
// memory has a hole of one field after hole bytes, unless hole is its length.
func (o *Oracle) rx(wire []byte, start int) (memory []byte, hole int, bad []sig.Error, ok bool) {
	s := append([]byte(nil), wire...)
	block, field := o.wire()
	if o.Crypto != nil && !o.cryptoFirst() && !o.crypt(s, position(start, block, field), !o.Crypto.EncryptOnTX) {
		return nil, 0, nil, false
	}
	s, hole, bad = o.sign(s, start, false)
	block, field = o.memory()
	if o.cryptoFirst() && !o.crypt(s, position(start, block, field), !o.Crypto.EncryptOnTX) {
		return nil, 0, nil, false
	}
	return s, hole, bad, true
}

// cryptoFirst reports whether crypto is nearer to memory than the signatures: in rows A,
// B, F, G, H and I.
func (o *Oracle) cryptoFirst() bool {
	if o.Crypto == nil {
		return false
	}
	memory := o.Signature != nil && o.Signature.Memory != nil
	wire := o.Signature != nil && o.Signature.Wire != nil
	if o.Crypto.EncryptOnTX {
		return !memory && (!wire || o.Crypto.Order == mkey.SignatureAfterCrypto)
	}
	return !memory || o.Crypto.Order == mkey.SignatureAfterCrypto
}

// crypt encrypts or decrypts s, which begins at start, the beginning of a data unit.
func (o *Oracle) crypt(s []byte, start int, encrypt bool) bool {
	tweak := o.Crypto.InitialTweak
	unit := o.Crypto.DataUnitSize
	for ; start > 0; start -= unit {
		tweak = tweak.Add(1)
	}
	if rest := len(s) % unit; rest != 0 && (len(s)%16 != 0 || rest > unit-16 || rest < 16) {
		return false
	}
	for len(s) > 0 {
		u := s[:min(len(s), unit)]
		if encrypt {
			o.Cipher.EncryptUnit(u, u, tweak)
		} else {
			o.Cipher.DecryptUnit(u, u, tweak)
		}
		s, tweak = s[len(u):], tweak.Add(1)
	}
	return true
}

// sign replaces the fields of one domain by those of the other. s begins after start
// bytes of data. Memory that it returns has a hole of one field after hole bytes, unless
// hole is its length.
func (o *Oracle) sign(s []byte, start int, tx bool) (out []byte, hole int, bad []sig.Error) {
	if o.Signature == nil {
		return s, len(s), nil
	}
	from, to := o.Signature.Memory, o.Signature.Wire
	if !tx {
		from, to = to, from
	}
	data, fields, tail := s, [][]byte(nil), false
	if from != nil {
		data = nil
		number := uint64(start / from.BlockSize)
		if part := start % from.BlockSize; part > 0 {
			// The rest of an incomplete first block passes through, without
			// its field.
			head := s[:min(len(s), from.BlockSize-part)]
			s = s[len(head):]
			s = s[min(len(s), from.FieldSize()):]
			data = append(data, head...)
			number++
		}
		for ; len(s) > 0; number++ {
			block := s[:min(len(s), from.BlockSize)]
			s = s[len(block):]
			data = append(data, block...)
			if len(s) < from.FieldSize() {
				// A last block that lacks data or a part of its field.
				tail = len(block) == from.BlockSize
				break
			}
			field := s[:from.FieldSize()]
			s = s[len(field):]
			fields = append(fields, field)
			if e := o.check(from, tx, number, block, field); e != nil {
				bad = append(bad, *e)
			}
		}
	}
	if to == nil {
		return data, len(data), bad
	}
	number := start / to.BlockSize
	if part := start % to.BlockSize; part > 0 {
		out = append(out, data[:min(len(data), to.BlockSize-part)]...)
		data = data[len(out):]
		hole = len(out)
		number++
	}
	// A block of an input without fields is complete with its data. A block of an
	// input with fields is incomplete without its field.
	copied := uint8(0)
	whole := len(data) / to.BlockSize
	if from != nil && from.BlockSize == to.BlockSize {
		copied, whole = o.copyMask(from, to), len(fields)
	} else if tail && len(data) > 0 {
		whole = (len(data) - 1) / to.BlockSize
	}
	for i := range whole {
		block := data[:to.BlockSize]
		data = data[to.BlockSize:]
		field := Field(to, uint64(number+i), block)
		if copied != 0 {
			for j := range field {
				if copied&maskBit(to, j) != 0 {
					field[j] = fields[i][j]
				}
			}
		}
		out = append(append(out, block...), field...)
	}
	out = append(out, data...)
	if hole == 0 {
		hole = len(out)
	}
	return out, hole, bad
}

// copyMask returns the caller's mask, or the specification's default.
func (o *Oracle) copyMask(in, out *sig.Format) uint8 {
	if o.Signature.CopyMask != nil {
		return uint8(*o.Signature.CopyMask)
	}
	if in.Type != out.Type {
		return 0
	}
	if in.Type != sig.T10DIF {
		return 0xFF
	}
	mask := uint8(0)
	if in.Guard == out.Guard && seed(in) == seed(out) {
		mask |= 0xC0
	}
	if in.AppTag == out.AppTag {
		mask |= 0x30
	}
	if in.RefTag == out.RefTag {
		mask |= 0x0F
	}
	return mask
}

// check compares the stored field with the expected one, part by part.
func (o *Oracle) check(f *sig.Format, tx bool, number uint64, block, stored []byte) *sig.Error {
	computed := Field(f, number, block)
	e := &sig.Error{Block: number, Offset: number * uint64(f.Stride())}
	if f.Type != sig.T10DIF {
		if !o.differ(f, tx, stored, computed, 0, len(stored)) {
			return nil
		}
		e.Kind, e.Stored, e.Computed = sig.BadGuard, value(f, stored), value(f, computed)
		return e
	}
	app, ref := binary.BigEndian.Uint16(stored[2:]), binary.BigEndian.Uint32(stored[4:])
	flags := f.Flags
	if !ruled(f) {
		flags |= sig.Type1
	}
	switch {
	case flags&sig.AppRefEscape != 0:
		if app == 0xFFFF && ref == 0xFFFFFFFF {
			return nil
		}
	case flags&sig.AppEscape != 0:
		if app == 0xFFFF {
			return nil
		}
	}
	parts := []struct {
		kind     sig.Kind
		from, to int
	}{{sig.BadGuard, 0, 2}, {sig.BadAppTag, 2, 4}, {sig.BadRefTag, 4, 8}}
	for _, p := range parts {
		if o.differ(f, tx, stored, computed, p.from, p.to) {
			e.Kind = p.kind
			e.Stored, e.Computed = value(f, stored[p.from:p.to]), value(f, computed[p.from:p.to])
			return e
		}
	}
	return nil
}

// differ compares the bytes from..to of two fields under the check mask and the
// mask of application tag bits.
func (o *Oracle) differ(f *sig.Format, tx bool, a, b []byte, from, to int) bool {
	app := f.AppMask
	if app == 0 && f.Flags&sig.IgnoreApp == 0 {
		app = 0xFFFF
	}
	if f.Type == sig.T10DIF && (from == 0 && f.Flags&sig.IgnoreGuard != 0 || from == 4 && f.Flags&sig.IgnoreRef != 0) {
		return false
	}
	for i := from; i < to; i++ {
		bits := uint8(0xFF)
		if f.Type == sig.T10DIF && i == 2 {
			bits = uint8(app >> 8)
		} else if f.Type == sig.T10DIF && i == 3 {
			bits = uint8(app)
		}
		mask := sig.Mask(0xFF)
		if o.Signature.CheckMask != nil {
			mask = *o.Signature.CheckMask
		}
		// The mask of the input domain replaces CheckMask, if it is set.
		if own := o.Signature.MemoryCheckMask; tx && own != nil {
			mask = *own
		} else if own := o.Signature.WireCheckMask; !tx && own != nil {
			mask = *own
		}
		if uint8(mask)&maskBit(f, i) != 0 && (a[i]^b[i])&bits != 0 {
			return true
		}
	}
	return false
}

// Field computes the field of a block, one bit at a time.
func Field(f *sig.Format, number uint64, block []byte) []byte {
	s := seed(f)
	switch f.Type {
	case sig.CRC32:
		return binary.BigEndian.AppendUint32(nil, ref.CRC32(uint32(s), block))
	case sig.CRC32C:
		return binary.LittleEndian.AppendUint32(nil, ref.CRC32C(uint32(s), block))
	case sig.CRC64:
		return binary.LittleEndian.AppendUint64(nil, ref.CRC64(s, block))
	}
	guard := ref.T10DIF
	if f.Guard == sig.GuardCSUM {
		guard = ref.CSUM
	}
	tag := uint32(f.RefTag)
	if f.Flags&sig.RefRemap != 0 || !ruled(f) {
		tag += uint32(number)
	}
	b := binary.BigEndian.AppendUint16(nil, guard(uint16(s), block))
	b = binary.BigEndian.AppendUint16(b, f.AppTag)
	return binary.BigEndian.AppendUint32(b, tag)
}

// ruled reports whether the flags of a format replace the rules of protection type 1.
func ruled(f *sig.Format) bool {
	return f.Flags&(sig.RefRemap|sig.AppEscape|sig.AppRefEscape|sig.Plain) != 0
}

// seed returns all ones or zero.
func seed(f *sig.Format) uint64 {
	if f.Seed == sig.SeedOnes || f.Seed == sig.SeedDefault && f.Type != sig.T10DIF {
		return ^uint64(0)
	}
	return 0
}

// maskBit returns the bit of a check or copy mask for byte i of the field in the stream.
func maskBit(f *sig.Format, i int) uint8 {
	if little(f) {
		return 1 << (8 - f.FieldSize() + i) // byte 0 is the least significant
	}
	return 0x80 >> i
}

// little reports whether the field is a little-endian number.
func little(f *sig.Format) bool { return f.Type == sig.CRC32C || f.Type == sig.CRC64 }

// value returns the number in a part of a field.
func value(f *sig.Format, b []byte) (v uint64) {
	for i := range b {
		if little(f) {
			i = len(b) - 1 - i
		}
		v = v<<8 | uint64(b[i])
	}
	return v
}
