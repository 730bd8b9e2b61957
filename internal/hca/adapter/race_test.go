//go:build race

package adapter_test

// sharedModes leaves shared queues out: the device writes them as it writes another
// process's memory, without a lock that the race detector knows.
var sharedModes = []bool{false}
