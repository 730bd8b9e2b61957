package packetconn_test

import (
	"fmt"

	"github.com/softmkey/softmkey/packetconn"
)

// A network that sends each datagram of a train on its own.
func ExampleTrain() {
	t := packetconn.Train{Buf: []byte("first-second-last"), Seg: 6}
	for i := range t.Count() {
		fmt.Printf("%s\n", t.At(i))
	}
	// Output:
	// first-
	// second
	// -last
}
