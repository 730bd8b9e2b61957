//go:build race

package engine

// raceEnabled: requests of several QPs to the same memory are races of the program.
const raceEnabled = true
