//go:build race

package mkey_test

// raceEnabled: under the race detector sync.Pool drops things at random.
const raceEnabled = true
