package ref

// ExpandKey returns the round keys of an AES key (FIPS 197, 5.2).
func ExpandKey(key []byte) (keys [][16]byte) {
	n := len(key) / 4
	keys = make([][16]byte, n+7)
	word := func(i int) []byte { return keys[i/4][i%4*4:][:4] }
	rcon := byte(1)
	for i := range 4 * len(keys) {
		if i < n {
			copy(word(i), key[4*i:])
			continue
		}
		t := [4]byte(word(i - 1))
		switch {
		case i%n == 0:
			t = [4]byte{sbox(t[1]) ^ rcon, sbox(t[2]), sbox(t[3]), sbox(t[0])}
			rcon = mul(rcon, 2)
		case n == 8 && i%n == 4:
			t = [4]byte{sbox(t[0]), sbox(t[1]), sbox(t[2]), sbox(t[3])}
		}
		for j := range t {
			word(i)[j] = t[j] ^ word(i - n)[j]
		}
	}
	return keys
}

// InverseMixColumns is INVMIXCOLUMNS (FIPS 197, 5.3.3). The equivalent inverse cipher applies it to all
// round keys but the first and the last.
func InverseMixColumns(b [16]byte) [16]byte { return columns(b, [4]byte{14, 11, 13, 9}) }

// columns multiplies the columns of b by the matrix whose first row is row; each further row is rotated
// by one.
func columns(b [16]byte, row [4]byte) (out [16]byte) {
	for i := range out {
		for j, factor := range row {
			out[i] ^= mul(b[i&^3+(i+j)%4], factor)
		}
	}
	return out
}

// sbox is SBOX (FIPS 197, 5.1.1), from its definition.
func sbox(x byte) byte {
	inverse := byte(1)
	for range 254 { // x^254
		inverse = mul(inverse, x)
	}
	s := byte(0x63)
	for i := range 5 {
		s ^= inverse<<i | inverse>>(8-i)
	}
	return s
}

// mul multiplies in the field of AES (FIPS 197, 4.2).
func mul(a, b byte) (p byte) {
	for ; b != 0; b >>= 1 {
		p ^= a * (b & 1)
		a = a<<1 ^ a>>7*0x1b
	}
	return p
}
