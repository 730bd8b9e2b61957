// Package nbd serves a block device by the NBD protocol: the fixed newstyle handshake, simple and
// structured replies, and the commands read, write, flush, trim, write zeroes and disconnect, over
// any number of connections to one device. The protocol is that of
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, whose names the constants have.
//
// Requests of one connection are executed side by side. The resources of clients are bounded: the
// number of connections, the requests and bytes of each, the bytes of all, and the time for a
// handshake and for the payload of a write. TLS, block status and extended headers are absent; the server refuses the
// options that ask for them. A block status would have nothing to tell: a range of an image with
// fields or ciphertext never reads as zeros because of a hole.
package nbd

import "time"

const (
	magicServer  = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption  = 0x49484156454f5054 // "IHAVEOPT"
	magicReply   = 0x3e889045565a9    // begins the reply to an option
	magicRequest = 0x25609513
	magicSimple  = 0x67446698
	magicChunk   = 0x668e33ef

	flagFixedNewstyle = 1 << 0
	flagNoZeroes      = 1 << 1

	optExportName      = 1
	optAbort           = 2
	optList            = 3
	optInfo            = 6
	optGo              = 7
	optStructuredReply = 8

	repAck    = 1
	repServer = 2
	repInfo   = 3

	repErrUnsup   = 1<<31 + 1
	repErrPolicy  = 1<<31 + 2
	repErrInvalid = 1<<31 + 3
	repErrUnknown = 1<<31 + 6
	repErrTooBig  = 1<<31 + 9

	infoExport    = 0
	infoBlockSize = 3

	sendHasFlags    = 1 << 0
	sendReadOnly    = 1 << 1
	sendFlush       = 1 << 2
	sendFUA         = 1 << 3
	sendTrim        = 1 << 5
	sendWriteZeroes = 1 << 6
	sendDF          = 1 << 7
	sendMultiConn   = 1 << 8

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisconnect  = 2
	cmdFlush       = 3
	cmdTrim        = 4
	cmdWriteZeroes = 6

	cmdFlagFUA    = 1 << 0
	cmdFlagNoHole = 1 << 1
	cmdFlagDF     = 1 << 2

	chunkDone        = 1 << 0
	chunkNone        = 0
	chunkOffsetData  = 1
	chunkError       = 1<<15 + 1
	chunkErrorOffset = 1<<15 + 2
)

// The errors of the protocol. They have the values of Linux's errno.
const (
	ePERM     = 1
	eIO       = 5
	eNOMEM    = 12
	eINVAL    = 22
	eNOSPC    = 28
	eOVERFLOW = 75
)

const (
	// maxRequest is the largest number of bytes of a read or write. Clients may assume this limit.
	maxRequest = 32 << 20
	// preferred is the block size in bytes that clients are told to prefer.
	preferred = 4096
	// maxHeld bounds the bytes of all requests of a connection that are executed at a time.
	maxHeld = maxRequest
	// ownHeld is the part of maxHeld that each connection has for itself, so that a client with usual
	// requests never waits for the memory of others. It shares what it holds beyond with the others.
	ownHeld = 1 << 20
	// maxShared bounds the bytes of all connections beyond ownHeld.
	maxShared = 4 * maxRequest
	// maxRunning bounds the requests of a connection that are executed at a time.
	maxRunning = 16
	// maxConnections bounds the clients that are served at a time. Further ones are refused.
	maxConnections = 128
	// maxRefusals bounds the clients that are told at a time why they are refused. Further ones are
	// disconnected.
	maxRefusals = 16
	// maxOption is the length of the longest option that is read. It is more than an option with
	// the longest name of an export has, which is 4096 bytes.
	maxOption = 8 << 10
	// patience is the time that a client has for its handshake and for the payload of a write, and in
	// which it must take some bytes of a reply if others wait for memory.
	patience = 30 * time.Second
	// grace is the time that a client has to take the replies to its last requests when the server
	// ends, and that a client which is refused has for its handshake.
	grace = time.Second
)
