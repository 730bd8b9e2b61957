//go:build !race

package adapter_test

// sharedModes are the ways in which tests give queues to the device: copied and shared.
var sharedModes = []bool{false, true}
