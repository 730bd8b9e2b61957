// Package officer lets a crypto officer change the secrets of a run while its programs work.
//
// A device in wrapped import mode has key encryption keys (KEKs) and credentials. Programs
// name them in their logins. The [Server] belongs to the run: it listens on a UNIX socket and
// executes [Request] messages. [Do] sends one. With them a program can be tried against a KEK
// that was rotated, a login that became invalid, and a data encryption key (DEK) in state
// error.
//
// Each connection carries one request and one [Reply], in JSON. Only the user who
// started the run, and root, may connect, since requests carry secrets.
package officer
