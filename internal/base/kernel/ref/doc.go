// Package ref computes block signatures bit by bit, and the round keys of AES, directly from their
// definitions. It is slow and simple, shares no code with the kernels, and is imported by tests only.
package ref
