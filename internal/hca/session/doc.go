// Package session runs a program that finds devices of softmkey: `softmkey run`.
//
// [Run] opens the devices of a run with their connection managers, traces, recordings and
// faults, starts the program under package intercept, answers for the nodes and the files that
// the program looks for, and closes everything when the program has ended. It knows no flags:
// a [Config] describes the run.
package session
