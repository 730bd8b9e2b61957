package main

func avx2() {
	expand()
}
