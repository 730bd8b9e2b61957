//go:build race

package verbs_test

// raceEnabled is true under the race detector, with which sync.Pool drops items at
// random.
const raceEnabled = true
