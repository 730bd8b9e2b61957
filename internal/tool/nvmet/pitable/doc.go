// Package pitable is for tests: it executes Read, Write and Compare at an NVMe over RDMA target with all combinations
// of PRACT and PRCHK, with wrong parts of a block on the medium, on the wire and in the command, and knows the status
// that the specification gives each of them. The rules and the guard are its own, and its host chooses the
// fields of a command that Linux's host does not.
//
// Source: NVM Command Set Specification 1.0, section 5.2, for protection information of type 1.
package pitable
