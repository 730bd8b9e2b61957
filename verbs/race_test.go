//go:build race

package verbs_test

// raceEnabled: under the race detector sync.Pool drops items at random.
const raceEnabled = true
