// Package fused signs and encrypts in one pass: AES-XTS in data units of 520 bytes, each
// a block of 512 and its T10-DIF, whose guard is computed in the gaps that the AES
// rounds leave. It costs hardly more than the encryption alone.
//
// There is an implementation for AVX-512 only, and none is needed elsewhere: what a run
// does is what package sig's transform and package xts do one after the other, which is also
// what the tests compare it with. [Available] says whether there is one.
package fused
