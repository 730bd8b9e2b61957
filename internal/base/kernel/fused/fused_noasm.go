//go:build purego || !amd64

package fused

// Available reports whether this machine can execute runs. If not, no other function or
// method of this package may be called.
func Available() bool { return false }

func execute(*Schedule, *Pass, *run) { panic("fused: no assembly in this build") }
