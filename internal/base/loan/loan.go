// Package loan marks in the code where a loan of memory ends.
//
// A slice that is passed on with a lifetime is a loan: the packets of a receive buffer, the
// buffers of a pool, a packet that is being sent. After the end of a loan its memory is used
// for something else, so a borrower that still reads it gets the bytes of another message.
// That happens rarely and silently. Builds with the tag poison overwrite the memory at the
// end of its loan, so that such a borrower reads [Poison] at once and a test fails.
// In other builds the package does nothing and costs nothing.
//
// docs/architecture.md lists the loans, their owners, and the tests that hold them.
package loan

// Poison is the byte that overwrites memory whose loan has ended, in builds with the tag
// poison.
const Poison = 0xdb
