package main

// Example runs the program and compares its output.
func Example() {
	main()
	// Output:
	// initiator: blocks 0 to 7: status "good", bad on the wire: false
	// initiator: blocks 8 to 15: status "good", bad on the wire: false
	// target: memory domain: bad guard: block 3 at offset 1560: stored 0x0, computed 0x9814
	// initiator: blocks 16 to 23: status "bad!", bad on the wire: true
	// initiator: blocks 24 to 31: status "good", bad on the wire: false
}
