package filecopy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// Endpoints are the endpoints of a side's two connections: control, then data.
type Endpoints [2]verbs.Endpoint

// end is the part that both sides share: two queue pairs, the slots, and a loop that
// runs in one goroutine. Only reading and writing the file have a goroutine of their
// own.
type end struct {
	plan *keyplan.Plan
	side keyplan.Side
	conf SideConfig
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ

	control, bulk *verbs.QP // the control and the data connection
	inbox         *verbs.MR // receives of control messages
	memory        *verbs.MR // all slots
	size          int       // of a slot
	keys          []*verbs.MKey
	access        rdma.Access // of the peer to the keys or the slots

	io     chan ioDone // chunks that the file's goroutine has read or written
	quit   chan struct{}
	gone   <-chan struct{} // closed when the other side does not exist any more
	events chan error      // the first error event of the device
	wcs    [32]rdma.WC
	out    Outcome
	start  time.Time
	posted map[uint64]time.Time // of the requests for data that are under way, by chunk
}

// SideConfig is the part of a configuration that both sides have.
type SideConfig struct {
	Secret    Secret // of the side's crypto
	KeepGoing bool   // a bad signature does not end the copy
	Retry     device.Retry
	// Bad, if not nil, is called for the first bad block of each chunk, with KeepGoing.
	Bad func(*mkey.BadBlock)
	// Progress, if not nil, is called with the number of bytes of the sender's Src that have arrived,
	// or of those that were written to the receiver's Dst.
	Progress func(done int64)
	Summary  *summary.Table // counts the requests for data, if not nil
}

// Secret is the data encryption key that a side's crypto uses.
type Secret struct {
	DEK    mkey.DEK
	KeyTag [8]byte
}

// ioDone reports that n bytes of a chunk were read or written.
type ioDone struct {
	chunk uint64
	n     int
	err   error
}

// Outcome is the result of a copy as one side knows it at the end.
type Outcome struct {
	Chunks   uint64
	Data     int64          // bytes of data, fields not counted
	Elapsed  time.Duration  // time from the start of the loop until all data was in its place
	Bad      uint64         // chunks in which this side's key found a bad block
	First    *mkey.BadBlock // the first bad block that this side's key found
	PeerBad  uint64         // chunks in which the other side's key found a bad block
	PeerBad1 *mkey.BadBlock // the first bad block that the other side's key found

	// FlipMissed reports that a byte was flipped and no key found it.
	FlipMissed bool

	Completions map[string]uint64 // by opcode

	mtu                int
	memory, wire, peer sample
}

// BadError is the error of a copy with a bad signature. It describes the first bad block.
type BadError struct {
	Side  string // "sender" or "receiver": whose key found it
	Block *mkey.BadBlock
}

// Error names the side, the domain and the block.
func (e *BadError) Error() string {
	return fmt.Sprintf("the %s's key, %v", e.Side, e.Block)
}

// Unwrap returns the record of the bad block.
func (e *BadError) Unwrap() error { return e.Block }

// stoppedError is the error of a copy that the other side has ended.
type stoppedError struct{ text string }

func (e *stoppedError) Error() string { return "the other side stopped: " + e.text }

// errGone is the error of a copy whose other side has closed the conversation.
var errGone = errors.New("the other side has gone away")

// The high byte of a request's id is its kind, the rest is its number.
const (
	idInbox   = 1 << 56
	idChunk   = 2 << 56
	idControl = 3 << 56
	idMask    = 1<<56 - 1
)

// maxInline has room for the largest message, and for a configuration with all
// attributes.
const maxInline = 256

func newEnd(dev *verbs.Device, p *keyplan.Plan, s keyplan.Side, c SideConfig, access rdma.Access) (e *end, err error) {
	e = &end{
		plan: p, side: s, conf: c, dev: dev, access: access, size: int(s.Memory.Len(p.Chunk)),
		// The channel has room for every chunk in flight, so that the file's
		// goroutine never blocks on it.
		io: make(chan ioDone, p.Slots+1), quit: make(chan struct{}), events: make(chan error, 1),
		out: Outcome{Completions: make(map[string]uint64)},
	}
	if s.Key.Crypto != nil && c.Secret.DEK == nil {
		return nil, errors.New("encryption without a data encryption key")
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.pd, err = dev.NewPD(); err != nil {
		return e, err
	}
	messages := e.messages()
	if e.cq, err = dev.NewCQ(2*messages + 8*p.Slots); err != nil {
		return e, err
	}
	attr := verbs.QPAttr{SendCQ: e.cq, MaxSendWR: 2*messages + 4*p.Slots, MaxRecvWR: messages, MaxInlineData: maxInline}
	for _, qp := range []**verbs.QP{&e.control, &e.bulk} {
		if *qp, err = e.pd.NewQP(attr); err != nil {
			return e, err
		}
	}
	if e.inbox, err = e.pd.Register(make([]byte, messages*maxMessage), rdma.LocalWrite); err != nil {
		return e, err
	}
	if e.memory, err = e.pd.Register(make([]byte, p.Slots*e.size), access|rdma.LocalWrite); err != nil {
		return e, err
	}
	return e, e.newKeys()
}

func (e *end) newKeys() error {
	if e.side.Key.Plain() {
		return nil
	}
	for range e.plan.Slots {
		key, err := e.side.Key.Make(e.pd)
		if err != nil {
			return err
		}
		e.keys = append(e.keys, key)
	}
	return nil
}

// messages returns how many control messages of the other side may be waiting: a grant
// or an offer for each slot, and the few that are sent once.
func (e *end) messages() int { return e.plan.Slots + 8 }

// Endpoints returns the endpoints that the other side connects to.
func (e *end) Endpoints() Endpoints {
	return Endpoints{e.control.Endpoint(), e.bulk.Endpoint()}
}

// Connect connects both queue pairs to the other side's. Only the data connection
// grants the peer access to memory.
func (e *end) Connect(peer Endpoints) error {
	for i, qp := range []*verbs.QP{e.control, e.bulk} {
		o := verbs.ConnectOptions{MTU: e.plan.MTU, Access: new(rdma.LocalWrite)}
		e.conf.Retry.Apply(&o)
		if qp == e.bulk {
			*o.Access |= e.access
		}
		if err := qp.Connect(peer[i], &o); err != nil {
			return err
		}
	}
	e.out.mtu = engine.QPOf(e.bulk).Query().PathMTU.Bytes()
	for i := range e.messages() {
		if err := e.listen(i); err != nil {
			return err
		}
	}
	return nil
}

// listen posts the receive request for a control message. A sender whose chunks are read
// gets TAKEN from the data connection.
func (e *end) listen(i int) error {
	qp := e.control
	if i < e.plan.Slots && e.plan.Op == keyplan.Read && e.name() == senderName {
		qp = e.bulk
	}
	_, err := qp.PostRecv(verbs.RecvWR{ID: idInbox | uint64(i), SGEs: []rdma.SGE{e.inbox.SGE(i*maxMessage, maxMessage)}})
	return err
}

// close destroys all objects except for the device.
func (e *end) close() {
	for _, qp := range []*verbs.QP{e.control, e.bulk} {
		if qp != nil {
			_ = qp.Close()
		}
	}
	for _, k := range e.keys {
		_ = k.Close()
	}
	for _, mr := range []*verbs.MR{e.inbox, e.memory} {
		if mr != nil {
			_ = mr.Close()
		}
	}
	if e.cq != nil {
		_ = e.cq.Close()
	}
	if e.pd != nil {
		_ = e.pd.Close()
	}
}

// slot returns the number of the slot of chunk k.
func (e *end) slot(k uint64) int { return int(k % uint64(e.plan.Slots)) }

// buffer returns the first n bytes of memory of chunk k.
func (e *end) buffer(k uint64, n int) []byte {
	return e.memory.Bytes()[e.slot(k)*e.size:][:n:n]
}

// keyOf returns the key of chunk k, with the data encryption key.
func (e *end) keyOf(k uint64) keyplan.Key {
	key := e.side.At(e.plan, k)
	if key.Crypto != nil {
		key.Crypto.DEK, key.Crypto.KeyTag = e.conf.Secret.DEK, e.conf.Secret.KeyTag
	}
	return key
}

// configure adds the configuration of the key of chunk k to a chain.
func (e *end) configure(c verbs.Chain, k uint64) {
	key := e.keyOf(k)
	key.Configure(c, e.keys[e.slot(k)], e.access, e.memory.SGE(e.slot(k)*e.size, e.size))
}

// sge returns the list entry for n bytes of chunk k, in the key's wire domain or in the
// plain region, and the rkey and address by which the peer names it.
func (e *end) sge(k uint64, n int) (local rdma.SGE, rkey uint32, addr uint64) {
	if e.keys != nil {
		key := e.keys[e.slot(k)]
		return key.SGE(0, n), key.RKey(), 0
	}
	local = e.memory.SGE(e.slot(k)*e.size, n)
	return local, e.memory.RKey(), local.Addr
}

// sendMessage adds a control message to a chain.
func (e *end) sendMessage(c verbs.Chain, m *message) verbs.Chain {
	var b [maxMessage]byte
	return c.Send().Inline(m.append(b[:0]))
}

// check records the bad block that the key of chunk k found. Without keep-going it is
// an error.
func (e *end) check(k uint64) error {
	if e.side.Key.Signature == nil {
		return nil
	}
	bad, err := e.keys[e.slot(k)].Check()
	if err != nil {
		return err
	}
	return e.found(e.side.Whole(e.plan, k, bad))
}

func (e *end) found(bad *mkey.BadBlock) error {
	if bad == nil {
		return nil
	}
	e.out.Bad++
	if e.out.First == nil {
		e.out.First = bad
	}
	if !e.conf.KeepGoing {
		return &BadError{e.name(), bad}
	}
	if e.conf.Bad != nil {
		e.conf.Bad(bad)
	}
	return nil
}

// verdict returns the first bad block of a copy that was completed: the sender's, or else the receiver's.
func (e *end) verdict() error {
	sender, receiver := e.out.First, e.out.PeerBad1
	if e.name() == receiverName {
		sender, receiver = receiver, sender
	}
	switch {
	case sender != nil:
		return &BadError{senderName, sender}
	case receiver != nil:
		return &BadError{receiverName, receiver}
	}
	return nil
}

// step holds the reactions of a side in its loop.
type step interface {
	advance() error             // posts the work requests that can be posted
	finished() bool             // ends the loop
	onCompletion(rdma.WC) error // of everything except for control messages
	onMessage(*message) error
	onFile(ioDone) error
}

// run is the loop of a side. On an error it sends STOP with the reason.
func (e *end) run(ctx context.Context, s step) error {
	e.start = time.Now()
	defer close(e.quit)
	watching, stopWatching := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { e.watch(watching) })
	err := e.loop(ctx, s)
	stopWatching()
	watcher.Wait()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		e.stop(err, ctx.Err() != nil)
	}
	return err
}

// watch receives the device's events. A queue pair may fail without a completion.
func (e *end) watch(ctx context.Context) {
	for {
		ev, err := e.dev.NextEvent(ctx)
		if err != nil {
			return
		}
		ev.Ack()
		if ev.QP != nil && ev.QP != e.control && ev.QP != e.bulk {
			continue
		}
		err = fmt.Errorf("%s connection: %v", e.connection(ev.QP), ev.Type)
		if ev.Err != nil {
			err = fmt.Errorf("%w: %w", err, ev.Err)
		}
		select {
		case e.events <- err:
		default: // only the first one is reported
		}
	}
}

// connection returns the name of a queue pair in errors.
func (e *end) connection(qp *verbs.QP) string {
	if qp == e.control {
		return "control"
	}
	return "data"
}

func (e *end) loop(ctx context.Context, s step) error {
	for {
		if err := s.advance(); err != nil {
			return err
		}
		if s.finished() {
			return nil
		}
		// Chunks that the file's goroutine has finished come first, because they free slots for
		// which the peer waits.
		for moved := true; moved; {
			select {
			case done := <-e.io:
				if err := s.onFile(done); err != nil {
					return err
				}
				if err := s.advance(); err != nil {
					return err
				}
			default:
				moved = false
			}
		}
		n := e.cq.Poll(e.wcs[:])
		if n == 0 {
			e.cq.Notify(false)
			n = e.cq.Poll(e.wcs[:])
		}
		if n == 0 {
			select {
			case <-e.cq.C():
			case done := <-e.io:
				if err := s.onFile(done); err != nil {
					return err
				}
			case err := <-e.events:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-e.gone:
				// The last messages of the other side are handled before the copy ends.
				if n = e.cq.Poll(e.wcs[:]); n == 0 {
					return errGone
				}
			}
		}
		for _, wc := range e.wcs[:n] {
			if err := e.take(s, wc); err != nil {
				return err
			}
		}
	}
}

// begun notes the time at which the request of a chunk is posted, for the summary.
func (e *end) begun(chunk uint64) {
	if e.conf.Summary == nil {
		return
	}
	if e.posted == nil {
		e.posted = make(map[uint64]time.Time)
	}
	e.posted[chunk] = time.Now()
}

// ended counts the request of a chunk with n bytes of data in the summary. A request for which
// begun was not called, such as a receive, is counted without a duration.
func (e *end) ended(wc rdma.WC, chunk uint64, n int64) {
	if e.conf.Summary == nil {
		return
	}
	var took time.Duration
	if begin, posted := e.posted[chunk]; posted {
		took = time.Since(begin)
		delete(e.posted, chunk)
	}
	e.conf.Summary.Add(wc.Opcode.String(), summary.Succeeded, 1, uint64(n), took)
}

// take handles a completion.
func (e *end) take(s step, wc rdma.WC) error {
	if wc.Status != rdma.StatusSuccess {
		outcome := summary.Failed
		if wc.Status == rdma.StatusWRFlushErr {
			outcome = summary.Flushed
		}
		e.conf.Summary.Add(wc.Opcode.String(), outcome, 1, 0, 0)
		return e.failed(wc)
	}
	e.out.Completions[wc.Opcode.String()]++
	if wc.ID&^idMask != idInbox {
		return s.onCompletion(wc)
	}
	i := int(wc.ID & idMask)
	m, err := parseMessage(e.inbox.Bytes()[i*maxMessage:][:wc.ByteLen])
	if err != nil {
		return err
	}
	if err := e.listen(i); err != nil {
		return err
	}
	if m.kind == kindStop {
		return e.stopped(&m)
	}
	return s.onMessage(&m)
}

// stopped returns the error for a STOP of the other side.
func (e *end) stopped(m *message) error {
	switch m.reason {
	case reasonBad:
		e.out.PeerBad, e.out.PeerBad1 = 1, m.bad
		return &BadError{e.otherName(), m.bad}
	case reasonInterrupted:
		return &stoppedError{"it was interrupted"}
	}
	return &stoppedError{jsonline.Clean(m.text)}
}

func (e *end) name() string {
	if e.side.Memory == &e.plan.Memory {
		return senderName
	}
	return receiverName
}

func (e *end) otherName() string {
	if e.name() == senderName {
		return receiverName
	}
	return senderName
}

const (
	senderName   = "sender"
	receiverName = "receiver"
)

// failed returns the error for a completion that did not succeed.
func (e *end) failed(wc rdma.WC) error {
	qp := e.bulk
	if wc.QPNum == e.control.Num() {
		qp = e.control
	}
	switch wc.Status {
	case rdma.StatusRetryExcErr:
		return fmt.Errorf("the other side does not answer any more (%s connection: %v: %v)", e.connection(qp), wc.Opcode, wc.Status)
	case rdma.StatusWRFlushErr:
		// The event with the reason arrives a little later than the completion.
		select {
		case err := <-e.events:
			return err
		case <-time.After(explanation):
		}
	}
	return fmt.Errorf("%s connection: %v: %v", e.connection(qp), wc.Opcode, wc.Status)
}

// explanation is how long failed waits for the event with the reason.
const explanation = 100 * time.Millisecond

// patience is how long a side waits until its STOP is acknowledged.
const patience = time.Second

// stop sends STOP, unless the error came from the other side.
func (e *end) stop(err error, interrupted bool) {
	m := message{kind: kindStop, reason: reasonFailed, text: err.Error()}
	var bad *BadError
	var other *stoppedError
	switch {
	case errors.As(err, &other), errors.Is(err, errGone):
		return
	case errors.As(err, &bad) && bad.Side != e.name():
		return
	case bad != nil:
		m.reason, m.bad = reasonBad, bad.Block
	case interrupted:
		m.reason = reasonInterrupted
	}
	if e.sendMessage(e.control.Start().ID(idControl).Signaled(), &m).Complete() != nil {
		return // the connection has failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		n, err := e.cq.Wait(ctx, e.wcs[:])
		if err != nil {
			return
		}
		for _, wc := range e.wcs[:n] {
			if wc.ID == idControl || wc.QPNum == e.control.Num() && wc.Status != rdma.StatusSuccess {
				return
			}
		}
	}
}
