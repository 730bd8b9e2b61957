// Package mkeytest helps to test programs that use memory keys: an [Oracle] that
// transforms streams in the plainest way, random configurations to compare with
// it, and fault injectors that say which error a fault should cause.
package mkeytest
