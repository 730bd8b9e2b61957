// Package interop holds the tests of the device against a peer that nobody of
// this project wrote: soft-RoCE of the Linux kernel, driven through libibverbs,
// in an emulated machine. README.md says how to run them, package rig how the
// machine is made.
//
// The package is a module of its own because its tests need root, Debian
// packages and a minute or two, which "go test ./..." of the project must not.
package interop
