// Package crc computes the signatures of runs of blocks with the fastest instructions of
// the machine. The algorithms are CRC-16/T10-DIF, CRC32, CRC32C, CRC64 and the IP
// checksum. One call can also copy the data, and write or compare the signature fields.
//
// A [Plan] holds the constants of one algorithm for blocks of one size. Its methods take
// a [Job], the addresses of the blocks and fields of one run. One call handles a whole
// run, because a block of 512 bytes is too short for a call of its own: the reductions of
// several blocks overlap, and the tags of eight blocks are combined at once.
//
// The package checks memory bounds only, and panics on a caller's mistake. Package sig
// interprets fields, escapes and masks.
//
// # Kernels
//
// All tiers give identical results. Tests run each tier by name and compare it with
// package ref, which computes bit by bit.
//
//	generic  eight bytes per step, with tables
//	avx2     carry-less products of 128 bits, one block after the other
//	vaes     as avx2, with products of 256 bits
//	avx512   products of 512 bits; T10-DIF by affine maps (GF2P8AFFINEQB); fields of
//	         eight blocks at a time
//	neon     as avx2, with the CRC32 instructions in parallel to the products
//
// kind.go has a row for each kind, which names its kernels. tables.go explains the
// arithmetic. The generator, internal/base/kernel/_asm/crc,
// explains the structure of the AVX-512 kernels.
package crc
