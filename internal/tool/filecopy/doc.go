// Package filecopy moves a file between two devices of package verbs, through a
// memory key on each side.
//
// The file SRC is the sender's memory domain. The sender's key turns it into the wire
// domain, and the receiver's key turns that into the receiver's memory domain, which
// is the file DST. A [keyplan.Plan] holds the attributes of both keys and the size of
// a chunk. A side whose key would do nothing uses a plain region instead.
//
// # The way of a chunk
//
// The file is cut into chunks of about 1 MiB. A chunk begins and ends on a boundary of
// the blocks and data units of both keys. Chunk k uses slot k modulo the number of
// slots on either side. A slot is memory for one chunk and a key over that memory. A
// work request configures the key anew for each chunk, with the reference tags and the
// tweak of the chunk's place in the file. A file may have any size, and its end need
// not be known.
//
// There are two connections. The data connection carries chunks and nothing else:
//
//	write   the receiver grants slots (CREDIT), the sender fills them by RDMA WRITE
//	        with immediate; the immediate is the low half of the chunk's number
//	send    the receiver posts slots as receive requests and announces them
//	        (CREDIT), the sender fills them by SEND
//	read    the sender offers chunks (READY), the receiver fetches them by RDMA READ
//	        and reports that (TAKEN)
//
// Both sides send messages, each of them one SEND:
//
//	CREDIT (1)  0 type  4 rkey  8 chunk  16 address
//	READY  (2)  0 type  4 rkey  8 chunk  16 address  24 length on the wire
//	TAKEN  (3)  0 type  8 chunk
//	DONE   (4)  0 type  8 chunks  16 bytes of data  24 chunks with a bad block
//	            32 bad block  72 sample of SRC  104 sample of the wire
//	RESULT (5)  0 type  8 bytes of DST  16 chunks with a bad block  24 bad block
//	            64 sample of DST
//	STOP   (6)  0 type  1 reason  2 length of the text  16 bad block  56 text
//	BYE    (7)  0 type
//
// The number before each field is its offset. A chunk, an address, a length or a count
// has 8 bytes, an rkey has 4, the length of the text has 2, a type or a reason has 1. A
// bad block is its kind and domain (a byte each), the key at offset 4, and block,
// offset, stored and computed value from offset 8 on. A sample is two counts (a byte
// each), the first 16 bytes of the domain at offset 8 and the first field at offset 24;
// the counts say how many bytes of the two are valid. All numbers are big-endian, and
// the bytes between fields are zero.
//
// A message that names a slot's key follows the key's configuration in the same send
// queue, so that the key is configured before the message leaves. TAKEN follows the READ
// in the data connection: the sender's device then drops late duplicates of that READ,
// which would read the slot while it is filled again. All other messages take the control
// connection. The sender sends DONE when it has sent everything and checked its keys. The
// receiver sends RESULT when DST is complete and in its place. Either side may send STOP
// at any time, which ends the copy: because of a bad signature, an error or an
// interruption.
//
// # Two processes
//
// The sides meet over TCP or rdma_cm (package rendezvous) and exchange lines of JSON. Both
// sides send a line of each kind without waiting for the other's:
//
//	{"program":"softmkey copy","version":3,"role":"receiver","terms":{"op":"send"},"size":-1}
//	{}
//	[{"gid":"192.0.2.1","qpn":19,"psn":1000,"mtu":4096},{"gid":"192.0.2.1","qpn":20,"psn":1001,"mtu":4096}]
//	{}
//
// The first line has the role, "sender" or "receiver", the terms of package keyplan (a term
// that is absent is the other side's, or the default) and the size of SRC, -1 if it is not
// known. The second line is the verdict on the terms of both, with a member "error" for a
// refusal. The third line has the endpoints of the control and of the data connection: an
// address of the device, which must be that of the conversation, the QP number, the PSN of
// the first packet that the side sends, and its largest path MTU. Both sides then connect
// their QPs, with the smaller MTU, and the last line is the verdict on that. A side may
// send a control message as soon as it has read the other side's last line. [Begin] does
// all of this, and returns a [Session] that is ready to run.
//
// # Trust
//
// Neither side trusts the other. Chunks, grants and offers must come in order, never
// more of them than there are slots, and none larger than a slot. Anything else ends
// the copy with an error. A peer can change the memory that its keys grant, which is
// the chunk that it is sending, and nothing else.
package filecopy
