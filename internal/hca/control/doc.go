// Package control changes a run while its programs work: a crypto officer its secrets, a tester the state
// of its devices.
//
// A device in wrapped import mode has key encryption keys (KEKs) and credentials. Programs
// name them in their logins. The [Server] belongs to the run: it listens on a UNIX socket and
// executes [Request] messages. [Do] sends one. With them a program can be tried against a KEK
// that was rotated, a login that became invalid, and a data encryption key (DEK) in state
// error; and against a port without a link, a fatal error of the device, other GIDs, a queue pair
// that fails, and packets that are lost.
//
// Each connection carries one request, and up to two of [Reply], in JSON: that the execution begins, and its result. A
// client that ends its direction of the connection withdraws a request that has not begun. Only the user who
// started the run, and root, may connect, since requests carry secrets.
package control
