// Package ref computes block signatures one bit at a time, straight from their
// definitions. It is slow and obviously right, shares no code with the kernels,
// and is imported by tests only.
package ref
