// Package crc computes the signatures of runs of blocks, at the speed of the
// machine: CRC-16/T10-DIF, CRC32, CRC32C, CRC64 and the IP checksum, alone or
// while the data is copied, with the signature fields written or compared in the
// same call.
//
// A [Plan] holds what one algorithm needs for blocks of one size. Its methods take
// a [Job]: where the blocks and fields of one run are. One call does a whole run,
// because a block of 512 bytes is too short for a call of its own: the
// reductions of several blocks overlap, and tags are put together for eight blocks
// at once.
//
// The package checks memory bounds only, and panics on a caller's mistake. The meaning
// of fields, their escapes and masks are the business of package sig.
//
// # Kernels
//
// Every tier computes the same, bit for bit, and is tested by name against the
// bit-at-a-time reference of package ref.
//
//	generic  eight bytes a step through tables
//	avx2     carry-less products of 128 bits, one block after the other
//	vaes     the same with products of 256 bits
//	avx512   products of 512 bits; T10-DIF by affine maps (GF2P8AFFINEQB), or by both
//	         at once in long blocks; four blocks side by side; the CRCs of 512 bytes and
//	         T10-DIF of multiples by whole cache lines, wherever the blocks begin
//	neon     as avx2, with the CRC32 instructions beside the products
//
// The arithmetic is explained in tables.go, the shape of the AVX-512 kernels in
// their generator, internal/base/kernel/_asm/crc.
package crc
