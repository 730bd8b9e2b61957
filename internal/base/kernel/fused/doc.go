// Package fused signs and encrypts in one pass: AES-XTS in data units of 520 bytes, each
// a block of 512 and its T10-DIF, whose guard is computed in the gaps that the AES
// rounds leave. It costs hardly more than the encryption alone.
//
// Only AVX-512 has an implementation, which [Available] reports. A run has the same result
// as the transform of package sig and package xts one after the other: that is the way on
// other machines, and the oracle of the tests.
package fused
