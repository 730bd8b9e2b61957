package engine

// MKey is a memory key.
type MKey struct{}

// Window is a memory window.
type Window struct{}
