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
// The control connection carries messages, each a SEND:
//
//	CREDIT (1)  0 type  4 rkey  8 chunk  16 address
//	READY  (2)  0 type  4 rkey  8 chunk  16 address  24 length on the wire
//	TAKEN  (3)  0 type  8 chunk
//	DONE   (4)  0 type  8 chunks  16 bytes of data  24 chunks with a bad block
//	            32 bad block  72 look at SRC  104 look at the wire
//	RESULT (5)  0 type  8 bytes of DST  16 chunks with a bad block  24 bad block
//	            64 look at DST
//	STOP   (6)  0 type  1 reason  2 length of the text  16 bad block  56 text
//	BYE    (7)  0 type
//
// Before each field stands its offset. A chunk, an address, a length or a count has 8
// bytes, an rkey 4, the length of the text 2, a type or a reason 1. A bad block is its
// kind and domain, a byte each, the key at 4, and block, offset, stored and computed
// value from 8 on. A look is two counts, a byte each, 16 bytes of the domain's
// beginning at 8 and 8 bytes of its first field at 24, of which so many count. All is
// big-endian, and what is in between is zero.
//
// A message that tells of a slot's key goes behind the key's configuration in one send
// queue, so that the key is ready when the message leaves.
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
