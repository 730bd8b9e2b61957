// Package trace writes what the devices of a run do: the records of package adapter and of the
// connection manager, as lines of text for people or as JSON for programs.
package trace
