// Package interop contains the tests of the device against an independent peer: soft-RoCE
// of the Linux kernel in an emulated machine, controlled through libibverbs. README.md
// explains how to run them, package rig how the machine is started.
//
// The package is a module of its own, because its tests need root, Debian packages and a
// minute or two, which "go test ./..." of the project must not need.
package interop
