package main

// Example runs the program and compares its output.
func Example() {
	main()
	// Output:
	// 100001 bytes, encrypted 100001; equal: false; decrypted equal: true
}
