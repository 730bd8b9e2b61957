//go:build !linux

package image

import "iter"

// Discard implements Store: it keeps the bytes.
func (f File) Discard(off, n int64) error { return nil }

// Holes yields nothing: each byte counts as data.
func (f File) Holes(off, n int64) iter.Seq2[int64, int64] { return func(func(from, to int64) bool) {} }
