//go:build !race

package udp

func released() {}

func acquired() {}
