package main

// Example runs the program and compares its output.
func Example() {
	main()
	// Output:
	// 1 MiB arrived; packets were lost: true; packets were repeated: true
}
