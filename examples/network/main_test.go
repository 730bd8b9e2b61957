package main

// The program runs and prints this.
func Example() {
	main()
	// Output:
	// 1 MiB arrived; packets were lost: true; packets were repeated: true
}
