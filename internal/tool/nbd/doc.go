// Package nbd serves a block device by the NBD protocol: the fixed newstyle handshake, simple and
// structured replies, and the commands read, write, flush, trim, write zeroes and disconnect, over
// any number of connections to one device. The protocol is that of
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, whose names the constants have.
//
// Requests of one connection are executed side by side. What a client can make the server hold is
// bounded: connections, requests and bytes of each, and the time for a handshake and for the payload
// of a write. TLS, block status and extended headers are absent: a client that asks is told so.
package nbd

import "time"

const (
	magicServer  = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption  = 0x49484156454f5054 // "IHAVEOPT"
	magicReply   = 0x3e889045565a9    // to an option
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
	// maxRequest is the longest request, which clients expect to be this one.
	maxRequest = 32 << 20
	// maxHeld is how many bytes the requests of a connection that are being executed have.
	maxHeld = 64 << 20
	// maxRunning is how many requests of a connection are executed side by side.
	maxRunning = 16
	// maxConnections is how many clients are served side by side. The others wait.
	maxConnections = 16
	// maxOption is the longest option that is read: the protocol's limit of a name, and room.
	maxOption = 8 << 10
	// patience is the time that a client has for its handshake, and for the payload of a write.
	patience = 30 * time.Second
)
