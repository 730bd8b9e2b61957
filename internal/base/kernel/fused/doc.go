// Package fused signs and encrypts in one pass. Its data units for AES-XTS have 520
// bytes, a block of 512 bytes and its T10-DIF field. The guard is computed in execution
// slots that the AES rounds leave free, so the cost is close to that of encryption alone.
//
// Only AVX-512 has an implementation; [Available] reports whether the machine can run it.
// The results equal those of package sig followed by package xts, which other machines
// use and with which the tests compare.
package fused
