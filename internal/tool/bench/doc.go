// Package bench times operations beside their peers and beside what limits them.
//
// What is timed is a [Row]: an operation of ours, perhaps the same by a peer, and
// perhaps something that cannot be beaten, such as a copy of the same memory. [Run]
// gives all of them a turn, then another, and so on, so that whatever else the machine
// does falls on each alike. Ratios are made within a round, of turns that were
// neighbours, and what is told of rates and ratios is the median of all rounds.
//
// [Sig], [XTS] and [MKey] are the rows that need nobody else: "softmkey bench" is made
// of them, and the program of "make bench" puts peers beside them.
package bench
