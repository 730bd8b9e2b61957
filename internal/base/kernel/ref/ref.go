package ref

// T10DIF returns the CRC-16/T10-DIF of data (SBC-3, 4.22.4): polynomial 0x8BB7,
// most significant bit first, register started at seed, no final inversion.
func T10DIF(seed uint16, data []byte) uint16 {
	return uint16(mostFirst(0x8BB7<<48, uint64(seed)<<48, data) >> 48)
}

// CRC32 returns the Fibre Channel CRC with the most significant bit first:
// polynomial 0x04C11DB7, register started at seed, inverted at the end.
func CRC32(seed uint32, data []byte) uint32 {
	return ^uint32(mostFirst(0x04C11DB7<<32, uint64(seed)<<32, data) >> 32)
}

// CRC32C returns the Castagnoli CRC (RFC 3720, 12.1): polynomial 0x1EDC6F41,
// least significant bit first, register started at seed, inverted at the end.
func CRC32C(seed uint32, data []byte) uint32 {
	return ^uint32(leastFirst(0x82F63B78, uint64(seed), data))
}

// CRC64 returns the CRC64 of XP10 and of NVMe: polynomial 0xAD93D23594C93659,
// least significant bit first, register started at seed, inverted at the end.
func CRC64(seed uint64, data []byte) uint64 {
	return ^leastFirst(0x9A6C9329AC4BC9B5, seed, data)
}

// mostFirst runs data through the register r, the most significant bit of a byte first. The register and
// the polynomial are at the top of their 64 bits.
func mostFirst(poly, r uint64, data []byte) uint64 {
	for _, b := range data {
		for bit := 7; bit >= 0; bit-- {
			out := r>>63 ^ uint64(b>>bit)&1
			r <<= 1
			if out != 0 {
				r ^= poly
			}
		}
	}
	return r
}

// leastFirst runs data through the register r, the least significant bit of a byte first. Bit 0 of the
// register and of the polynomial is the highest power of x.
func leastFirst(reflected, r uint64, data []byte) uint64 {
	for _, b := range data {
		for bit := range 8 {
			out := r&1 ^ uint64(b>>bit)&1
			r >>= 1
			if out != 0 {
				r ^= reflected
			}
		}
	}
	return r
}

// CSUM returns the IP checksum (RFC 1071) of data, an even number of bytes, with
// seed as the first addend.
func CSUM(seed uint16, data []byte) uint16 {
	sum := seed
	for i := 0; i < len(data); i += 2 {
		word := uint16(data[i])<<8 | uint16(data[i+1])
		next := sum + word
		if next < sum { // the carry comes back in at the low end
			next++
		}
		sum = next
	}
	return ^sum
}
