//go:build race

package engine

// raceEnabled is true under the race detector, which reports requests of several QPs to
// the same memory. Those are races of the program.
const raceEnabled = true
