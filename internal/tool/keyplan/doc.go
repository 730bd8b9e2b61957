// Package keyplan turns the words of a command line into the memory keys of two
// devices between which data moves.
//
// [Terms] say which signatures are in three domains, the sender's memory, the wire and
// the receiver's memory, and which crypto each side does. [New] returns the [Plan]: the
// attributes of both keys, and the size of a chunk, which is a whole number of blocks
// and data units in all domains. A side whose key would do nothing uses a plain
// region.
package keyplan
