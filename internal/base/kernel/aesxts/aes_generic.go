package aesxts

import (
	"encoding/binary"
	"math/bits"
)

// This file implements AES (FIPS 197) in plain Go, for machines without AES instructions
// and as the reference for the kernels. The package does not use crypto/aes, because that
// keeps the round keys on the heap, where they cannot be locked or overwritten. Here they
// stay in the caller's memory. The tables are indexed by secret bytes, as in the plain Go
// code of crypto/aes, so the time of a lookup depends on the cache.

// tables are computed at start, which takes 10 µs and avoids typing errors.
var tables = makeTables()

type aesTables struct {
	sbox, inverse [256]byte // SBOX and INVSBOX
	// Column of MIXCOLUMNS(SUBBYTES(x)) for a byte x in row 0, with the first row in
	// the most significant byte, and the same for the inverse cipher. The columns for
	// the other rows are rotations.
	enc, dec [256]uint32
}

// gfMul multiplies in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197, 4.2).
func gfMul(a, b byte) (p byte) {
	for ; b != 0; b >>= 1 {
		p ^= a * (b & 1)
		a = a<<1 ^ a>>7*0x1b
	}
	return p
}

func makeTables() *aesTables {
	t := new(aesTables)
	// p takes all values but 0 as powers of the generator 3. q takes their inverses,
	// as powers of 3's inverse 0xf6.
	p, q := byte(1), byte(1)
	t.set(0, 0x63)
	for range 255 {
		s := q
		for i := 1; i <= 4; i++ {
			s ^= bits.RotateLeft8(q, i)
		}
		t.set(p, s^0x63)
		p, q = gfMul(p, 3), gfMul(q, 0xf6)
	}
	return t
}

// set records s as the S-box value of x.
func (t *aesTables) set(x, s byte) {
	t.sbox[x], t.inverse[s] = s, x
	t.enc[x] = uint32(gfMul(s, 2))<<24 | uint32(s)<<16 | uint32(s)<<8 | uint32(gfMul(s, 3))
	t.dec[s] = uint32(gfMul(x, 14))<<24 | uint32(gfMul(x, 9))<<16 | uint32(gfMul(x, 13))<<8 | uint32(gfMul(x, 11))
}

func subWordGeneric(w uint32) uint32 {
	s := &tables.sbox
	return uint32(s[w>>24])<<24 | uint32(s[w>>16&0xff])<<16 | uint32(s[w>>8&0xff])<<8 | uint32(s[w&0xff])
}

// invertGeneric sets dec to the round keys of the equivalent inverse cipher (FIPS 197,
// 5.3.5), in order of use.
func invertGeneric(enc, dec *roundKeys, rounds uint64) {
	dec[0], dec[rounds] = enc[rounds], enc[0]
	t := tables
	for r := uint64(1); r < rounds; r++ {
		for c := 0; c < BlockSize; c += 4 {
			// The table includes the inverse substitution, which the S-box
			// cancels here.
			k := enc[rounds-r][c:][:4]
			binary.BigEndian.PutUint32(dec[r][c:], t.dec[t.sbox[k[0]]]^
				bits.RotateLeft32(t.dec[t.sbox[k[1]]], -8)^
				bits.RotateLeft32(t.dec[t.sbox[k[2]]], -16)^
				bits.RotateLeft32(t.dec[t.sbox[k[3]]], -24))
		}
	}
}

// encryptBlockGeneric encrypts the block b.
func encryptBlockGeneric(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	t := tables
	w := func(p *[BlockSize]byte, i int) uint32 { return binary.BigEndian.Uint32(p[4*i:]) }
	k := &keys[0]
	s0, s1, s2, s3 := w(b, 0)^w(k, 0), w(b, 1)^w(k, 1), w(b, 2)^w(k, 2), w(b, 3)^w(k, 3)
	for r := uint64(1); r < rounds; r++ {
		k = &keys[r]
		s0, s1, s2, s3 = t.encColumn(s0, s1, s2, s3)^w(k, 0), t.encColumn(s1, s2, s3, s0)^w(k, 1),
			t.encColumn(s2, s3, s0, s1)^w(k, 2), t.encColumn(s3, s0, s1, s2)^w(k, 3)
	}
	k = &keys[rounds]
	binary.BigEndian.PutUint32(b[0:], lastColumn(&t.sbox, s0, s1, s2, s3)^w(k, 0))
	binary.BigEndian.PutUint32(b[4:], lastColumn(&t.sbox, s1, s2, s3, s0)^w(k, 1))
	binary.BigEndian.PutUint32(b[8:], lastColumn(&t.sbox, s2, s3, s0, s1)^w(k, 2))
	binary.BigEndian.PutUint32(b[12:], lastColumn(&t.sbox, s3, s0, s1, s2)^w(k, 3))
}

// decryptBlockGeneric decrypts the block b with the round keys of the equivalent inverse
// cipher.
func decryptBlockGeneric(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	t := tables
	w := func(p *[BlockSize]byte, i int) uint32 { return binary.BigEndian.Uint32(p[4*i:]) }
	k := &keys[0]
	s0, s1, s2, s3 := w(b, 0)^w(k, 0), w(b, 1)^w(k, 1), w(b, 2)^w(k, 2), w(b, 3)^w(k, 3)
	for r := uint64(1); r < rounds; r++ {
		k = &keys[r]
		s0, s1, s2, s3 = t.decColumn(s0, s3, s2, s1)^w(k, 0), t.decColumn(s1, s0, s3, s2)^w(k, 1),
			t.decColumn(s2, s1, s0, s3)^w(k, 2), t.decColumn(s3, s2, s1, s0)^w(k, 3)
	}
	k = &keys[rounds]
	binary.BigEndian.PutUint32(b[0:], lastColumn(&t.inverse, s0, s3, s2, s1)^w(k, 0))
	binary.BigEndian.PutUint32(b[4:], lastColumn(&t.inverse, s1, s0, s3, s2)^w(k, 1))
	binary.BigEndian.PutUint32(b[8:], lastColumn(&t.inverse, s2, s1, s0, s3)^w(k, 2))
	binary.BigEndian.PutUint32(b[12:], lastColumn(&t.inverse, s3, s2, s1, s0)^w(k, 3))
}

// encColumn computes a column of SUBBYTES, SHIFTROWS and MIXCOLUMNS. Row i comes from
// column w_i.
func (t *aesTables) encColumn(w0, w1, w2, w3 uint32) uint32 {
	return t.enc[w0>>24] ^ bits.RotateLeft32(t.enc[w1>>16&0xff], -8) ^
		bits.RotateLeft32(t.enc[w2>>8&0xff], -16) ^ bits.RotateLeft32(t.enc[w3&0xff], -24)
}

// decColumn is encColumn for the inverse cipher.
func (t *aesTables) decColumn(w0, w1, w2, w3 uint32) uint32 {
	return t.dec[w0>>24] ^ bits.RotateLeft32(t.dec[w1>>16&0xff], -8) ^
		bits.RotateLeft32(t.dec[w2>>8&0xff], -16) ^ bits.RotateLeft32(t.dec[w3&0xff], -24)
}

// lastColumn computes a column of the last round, which has no MIXCOLUMNS.
func lastColumn(s *[256]byte, w0, w1, w2, w3 uint32) uint32 {
	return uint32(s[w0>>24])<<24 | uint32(s[w1>>16&0xff])<<16 | uint32(s[w2>>8&0xff])<<8 | uint32(s[w3&0xff])
}
