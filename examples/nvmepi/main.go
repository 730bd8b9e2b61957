// Nvmepi is a host of NVMe over RDMA with T10-DIF on the wire, beside a target whose namespace has
// integrity, for example Linux's nvmet with pi_enable. Its memory has data only: a memory key adds
// the fields when the target reads the blocks of a write, and checks and removes them when the
// target writes those of a read. Then it shows that both sides check: it writes a block with a bad
// guard, and reads a block as if it were another one.
//
//	go run ./examples/nvmepi -device 192.0.2.1 -target 192.0.2.2:4420 -subsystem s1
//
// Blocks 0 to 15 of the namespace are overwritten. Sources: NVM Express base specification 2.0
// (queues, identify, connect) and NVMe over RDMA transport specification 1.0.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

var le = binary.LittleEndian

// Sizes.
const (
	capsule  = 64 // a command
	response = 16
	depth    = 16 // of an I/O queue
	adminQ   = 32 // depth of the admin queue
	blocks   = 8  // of a read or write
	field    = 8  // bytes of T10-DIF after a block
)

// Commands, and offsets of their fields in bytes.
const (
	opIdentify = 0x06
	opWrite    = 0x01
	opRead     = 0x02
	opFabrics  = 0x7f

	fabricsSetProperty = 0x00
	fabricsConnect     = 0x01
	fabricsGetProperty = 0x04

	cmdFlags     = 1
	cmdID        = 2
	cmdFabrics   = 4 // the type of a fabrics command
	cmdNamespace = 4
	cmdData      = 24 // where the data are
	cmdWords     = 40 // what is particular to a command

	keyedData   = 0x40 // a data descriptor with a key
	useKeyed    = 0x40 // flags: descriptors, not pages
	allChecks   = 7 << 10
	ctrlConfig  = 0x14 // property CC
	ctrlStatus  = 0x1c // property CSTS
	enableCtrl  = 4<<20 | 6<<16 | 1
	statusGuard = 0x282 // guard check error
)

// queue is a submission and a completion queue: a queue pair.
type queue struct {
	pd   *verbs.PD
	qp   *verbs.QP
	sent *verbs.CQ
	done *verbs.CQ
	conn *cm.Conn
	msg  *verbs.MR
	id   uint16
}

// dial connects a queue; 0 is the admin queue.
func dial(dev *verbs.Device, target netip.AddrPort, number, size uint16) *queue {
	q := &queue{pd: must(dev.NewPD()), sent: must(dev.NewCQ(64)), done: must(dev.NewCQ(64))}
	q.qp = must(q.pd.NewQP(verbs.QPAttr{SendCQ: q.sent, RecvCQ: q.done}))
	q.msg = must(q.pd.Register(make([]byte, response), rdma.LocalWrite))
	check(q.qp.Init(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead))
	q.receive()
	private := make([]byte, 32) // the format of requests is 0
	le.PutUint16(private[2:], number)
	le.PutUint16(private[4:], size)   // of our receive queue
	le.PutUint16(private[6:], size-1) // of our send queue, counted from 0
	q.conn = must(cm.Dial(context.Background(), q.qp, target, &cm.ConnOptions{PrivateData: private}))
	return q
}

func (q *queue) receive() {
	must(q.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{q.msg.SGE(0, response)}}))
}

// command is a command that has no data yet.
func command(op byte) []byte {
	c := make([]byte, capsule)
	c[0], c[cmdFlags], c[cmdData+15] = op, useKeyed, keyedData
	return c
}

// place says where the data of a command are: n bytes from addr on of a key of ours.
func place(c []byte, addr uint64, n int, rkey uint32) {
	le.PutUint64(c[cmdData:], addr)
	le.PutUint32(c[cmdData+8:], uint32(n)) // 3 bytes
	copy(c[cmdData+11:cmdData+15], le.AppendUint32(nil, rkey))
}

// exec sends a command behind the requests of a chain, and returns the result and the status of
// its answer.
func (q *queue) exec(wr verbs.Chain, c []byte) (result uint64, status uint16) {
	q.id++
	le.PutUint16(c[cmdID:], q.id)
	wr.Signaled().Send().Inline(c)
	check(wr.Complete())
	next(q.sent)
	next(q.done)
	b := q.msg.Bytes()
	if id := le.Uint16(b[12:]); id != q.id {
		log.Fatalf("an answer to command %d instead of %d", id, q.id)
	}
	result, status = le.Uint64(b), le.Uint16(b[14:])>>1
	q.receive()
	return result, status
}

// next waits for a completion.
func next(cq *verbs.CQ) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wc [1]rdma.WC
	must(cq.Wait(ctx, wc[:]))
	check(wc[0].Err)
}

// must succeed.
func (q *queue) must(what string, c []byte) uint64 {
	result, status := q.exec(q.qp.Start(), c)
	if status != 0 {
		log.Fatalf("%s: status %#x", what, status)
	}
	return result
}

// register takes the queue to a controller: 0xffff makes one.
func (q *queue) register(number, size, controller uint16, subsystem string) uint16 {
	const host = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
	data := must(q.pd.Register(make([]byte, 1024), rdma.LocalWrite|rdma.RemoteRead))
	defer data.Close()
	b := data.Bytes()
	copy(b, "softmkey nvmepi.")
	le.PutUint16(b[16:], controller)
	copy(b[256:], subsystem)
	copy(b[512:], host)
	c := command(opFabrics)
	c[cmdFabrics] = fabricsConnect
	place(c, data.Addr(), len(b), data.RKey())
	le.PutUint16(c[cmdWords+2:], number)
	le.PutUint16(c[cmdWords+4:], size-1)
	return uint16(q.must("connect", c))
}

// enable starts the controller.
func (q *queue) enable() {
	c := command(opFabrics)
	c[cmdFabrics] = fabricsSetProperty
	le.PutUint32(c[cmdWords+4:], ctrlConfig)
	le.PutUint64(c[cmdWords+8:], enableCtrl)
	q.must("set property", c)
	for ready := uint64(0); ready&1 == 0; {
		c = command(opFabrics)
		c[cmdFabrics] = fabricsGetProperty
		le.PutUint32(c[cmdWords+4:], ctrlStatus)
		ready = q.must("get property", c)
	}
}

// namespace is what the target says about a namespace.
type namespace struct {
	blocks    uint64
	blockSize int
	metadata  int
	together  bool // the metadata of a block follow it
	piType    byte
}

func (q *queue) identify(id uint32) namespace {
	data := must(q.pd.Register(make([]byte, 4096), rdma.LocalWrite|rdma.RemoteWrite))
	defer data.Close()
	c := command(opIdentify)
	le.PutUint32(c[cmdNamespace:], id)
	place(c, data.Addr(), 4096, data.RKey())
	q.must("identify", c)
	b := data.Bytes()
	format := b[128+4*int(b[26]&15):]
	return namespace{blocks: le.Uint64(b), blockSize: 1 << format[2], metadata: int(le.Uint16(format)), together: b[26]&0x10 != 0, piType: b[29] & 7}
}

// disk is a namespace behind an I/O queue.
type disk struct {
	*queue
	key *verbs.MKey
	buf *verbs.MR
	ns  namespace
}

func (d *disk) format(lba uint64) *sig.Format {
	return &sig.Format{Type: sig.T10DIF, BlockSize: d.ns.blockSize, RefTag: lba}
}

// transfer reads or writes blocks from lba on. The key is configured before the command is sent:
// the target's RDMA goes through it.
func (d *disk) transfer(op byte, lba uint64, memory int, s mkey.Signature) (status uint16, bad *mkey.BadBlock) {
	wire := blocks * (d.ns.blockSize + field)
	c := command(op)
	le.PutUint32(c[cmdNamespace:], 1)
	place(c, 0, wire, d.key.RKey())
	le.PutUint64(c[cmdWords:], lba)
	le.PutUint32(c[cmdWords+8:], allChecks<<16|blocks-1)
	le.PutUint32(c[cmdWords+16:], uint32(lba)) // the first reference tag
	wr := d.qp.Start()
	wr.Configure(d.key).Access(rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite).List(d.buf.SGE(0, memory)).Signature(s)
	_, status = d.exec(wr, c)
	return status, must(d.key.Check())
}

func main() {
	log.SetFlags(0)
	device := flag.String("device", "", "local IP address")
	target := flag.String("target", "", "address and port of the target")
	subsystem := flag.String("subsystem", "", "NQN of the subsystem")
	flag.Parse()
	if *device == "" || *target == "" || *subsystem == "" {
		log.Fatal("-device, -target and -subsystem are needed")
	}
	dev := must(verbs.Open(must(netip.ParseAddr(*device)), nil))
	addr := must(netip.ParseAddrPort(*target))

	admin := dial(dev, addr, 0, adminQ)
	controller := admin.register(0, adminQ, 0xffff, *subsystem)
	admin.enable()
	ns := admin.identify(1)
	fmt.Printf("controller %d, namespace 1: %d blocks of %d+%d bytes, protection type %d\n", controller, ns.blocks, ns.blockSize, ns.metadata, ns.piType)
	if ns.metadata != field || !ns.together || ns.piType != 1 {
		log.Fatal("the namespace has no T10-PI of type 1 with the data")
	}

	d := &disk{queue: dial(dev, addr, 1, depth), ns: ns}
	d.register(1, depth, controller, *subsystem)
	d.key = must(d.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 1}))
	plain, protected := blocks*ns.blockSize, blocks*(ns.blockSize+field)
	d.buf = must(d.pd.Register(make([]byte, protected), rdma.LocalWrite))
	text := bytes.Repeat([]byte("softmkey as a host of NVMe over RDMA. "), plain/38+1)[:plain]

	// The fields are only on the wire.
	for lba := uint64(0); lba < 2*blocks; lba += blocks {
		copy(d.buf.Bytes(), text)
		status, bad := d.transfer(opWrite, lba, plain, mkey.Signature{Wire: d.format(lba)})
		fmt.Printf("write of blocks %d to %d: status %#x, bad: %v\n", lba, lba+blocks-1, status, bad != nil)
		clear(d.buf.Bytes())
		status, bad = d.transfer(opRead, lba, plain, mkey.Signature{Wire: d.format(lba)})
		fmt.Printf("read of blocks %d to %d: status %#x, bad: %v, equal: %v\n", lba, lba+blocks-1, status, bad != nil, bytes.Equal(d.buf.Bytes()[:plain], text))
	}

	// The fields are in memory, too, and the key passes a bad one on: the target finds it.
	must(d.format(0).Protect(d.buf.Bytes(), text))
	d.buf.Bytes()[3*(ns.blockSize+field)+5] ^= 1
	status, bad := d.transfer(opWrite, 0, protected, mkey.Signature{Memory: d.format(0), Wire: d.format(0), CheckMask: new(sig.MaskRef)})
	fmt.Printf("write with a bad guard: status %#x, guard check error: %v, bad: %v\n", status, status&0x3fff == statusGuard, bad != nil)
	status, bad = d.transfer(opRead, blocks, plain, mkey.Signature{Wire: d.format(0)})
	fmt.Printf("read as if it were from block 0: status %#x, bad: %v\n", status, bad)

	check(d.conn.Close())
	check(admin.conn.Close())
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
