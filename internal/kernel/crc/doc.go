// Package crc computes the signatures of runs of blocks, at the speed of the
// machine: CRC-16/T10-DIF, CRC32, CRC32C, CRC64 and the IP checksum, alone or
// while the data is copied, with the signature fields written or compared in the
// same call.
//
// A [Plan] holds what one algorithm needs for blocks of one size. Its methods take
// a [Job]: where the blocks and fields of one run are. One call does a whole run,
// because a block of 512 bytes is too short to be worth a call of its own: the
// reductions of several blocks overlap, and tags are put together for eight blocks
// at once.
//
// The package checks only what memory safety needs and panics on a caller's
// mistake. What a field means, what is escaped and what is masked is decided by
// package sig.
package crc
