// Package bench times operations beside their peers and beside their limits.
//
// A [Row] is an operation of ours, possibly the same operation by a peer, and possibly
// a limit that no implementation can beat, such as a copy of the same memory. [Run]
// times the cases of a row in turn, in many short rounds, so that a slow moment of the
// machine affects all of them alike. Rates and ratios are medians over the rounds.
//
// [Rows] returns the rows that need no other program, which "softmkey bench" measures.
// "make bench" adds peers to them, and rows for files and for the wire.
package bench
