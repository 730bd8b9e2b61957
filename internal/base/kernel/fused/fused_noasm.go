//go:build purego || !amd64

package fused

// Available reports whether runs can be made on this machine. Nothing else in this package
// may be called where they cannot.
func Available() bool { return false }

func encrypt(*Schedule, *run) { panic("fused: no assembly in this build") }
func decrypt(*Schedule, *run) { panic("fused: no assembly in this build") }
