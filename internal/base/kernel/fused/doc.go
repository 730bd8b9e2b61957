// Package fused signs and encrypts in one pass. Its blocks have 512 bytes and T10-DIF
// fields before the pass, after it, or on both sides. Fields may be encrypted with their
// blocks, in data units of 520 bytes for AES-XTS. The guard is computed in execution slots
// that the AES rounds leave free, so the cost is close to that of encryption alone.
//
// Only AVX-512 has an implementation; [Available] reports whether the machine can run it.
// The results equal those of packages sig and xts one after the other, which other
// machines use and with which the tests compare.
package fused
