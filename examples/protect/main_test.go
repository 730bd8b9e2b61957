package main

// Example runs the program and compares its output.
func Example() {
	main()
	// Output:
	// 19000 bytes of data became 19296 with fields
	// the file is good
	// bad guard in block 3: the field says 0x52d6, the data 0x9b0b
}
