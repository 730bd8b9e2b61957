// Package filecopy moves a file between two devices of package verbs, through a
// memory key on each side.
//
// The file SRC is the sender's memory domain. The sender's key makes the wire
// domain of it, the receiver's key makes the peer's memory of that, which is the
// file DST. [Terms] say what stands in the three domains and what each key does;
// [NewPlan] turns them into the attributes of two keys and the size of a chunk. A
// side whose key would do nothing uses a plain region instead.
//
// # The way of a chunk
//
// The file is cut into chunks of about 1 MiB that begin and end on a boundary of
// the blocks and data units of both keys. Chunk k goes through slot k modulo the
// number of slots on either side. A slot is memory for one chunk and a key over it,
// which a work request configures anew for each chunk, with the reference tags and
// the tweak that belong to the chunk's place in the file. A file may be of any size
// and its end need not be known.
//
// There are two connections. The data connection carries chunks and nothing else:
//
//	write   the receiver grants slots (CREDIT), the sender fills them with RDMA
//	        WRITE with immediate, which is the low half of the chunk's number
//	send    the receiver posts slots as receive requests and says so (CREDIT), the
//	        sender fills them with SEND
//	read    the sender offers chunks (READY), the receiver fetches them with RDMA
//	        READ and says so (TAKEN)
//
// The control connection carries messages, each a SEND of a fixed size by its type,
// big-endian:
//
//	offset  CREDIT (1)   READY (2)    TAKEN (3)   DONE (4)         RESULT (5)       STOP (6)
//	0       type         type         type        type             type             type, reason, length of text
//	4       rkey         rkey
//	8       chunk        chunk        chunk       chunks           bytes of DST
//	16      address      address                  bytes of data    bad chunks       bad block (40)
//	24                   length                   bad chunks       bad block (40)
//	32                                            bad block (40)
//	56                                                                              text
//	64                                                             look at DST (32)
//	72                                            look at SRC (32)
//	104                                           look at the wire (32)
//
// and BYE (7), a type alone. A message that configures a slot's key goes behind the
// configuration in one send queue, so that the key is ready when the message leaves.
// DONE comes when the sender has sent everything and checked its keys; RESULT when
// the receiver has everything in its place. STOP may come at any time from either
// side, and ends the copy: because of a bad signature, an error, or an
// interruption.
//
// # Trust
//
// Neither side believes the other. Chunks, grants and offers must come in order, no
// more of them than there are slots and none larger than a slot; anything else ends
// the copy with an error. What a peer can do is what its keys let it do: damage the
// chunk that it is sending anyway.
package filecopy
