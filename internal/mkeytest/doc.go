// Package mkeytest provides test helpers for programs that use memory keys: an [Oracle]
// that transforms streams in a simple and slow way, random configurations to compare with
// it, and fault injectors that return the error a fault should cause.
package mkeytest
