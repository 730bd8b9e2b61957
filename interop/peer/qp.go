package peer

import (
	"fmt"
	"net/netip"
	"time"
)

// QPConfig configures a queue pair; zeros select rxepeer's defaults.
type QPConfig struct {
	Access    Access // rights of remote peers: w, r, a; empty means all
	Sends     int    // send queue; 0 means 256
	Recvs     int    // receive queue; 0 means 256
	MaxInline int
}

// QP is a reliable-connection queue pair in the guest.
type QP struct {
	Num uint32

	id int
	s  *Session
}

// NewQP creates a queue pair and moves it to INIT.
func (s *Session) NewQP(c QPConfig) (*QP, error) {
	request := "qp" + accessWord(c.Access) + fmt.Sprintf(" inline=%d", c.MaxInline)
	if c.Sends != 0 {
		request += fmt.Sprintf(" sends=%d", c.Sends)
	}
	if c.Recvs != 0 {
		request += fmt.Sprintf(" recvs=%d", c.Recvs)
	}
	v, err := s.command(request)
	if err != nil {
		return nil, err
	}
	return &QP{Num: uint32(v.uint("qpn")), id: int(v.uint("qp")), s: s}, nil
}

// ConnectConfig describes the connection to the other queue pair. Zero counts and timers
// are used as zeros; start from [Defaults].
type ConnectConfig struct {
	Source      netip.Addr // one of the guest's addresses
	Destination netip.Addr
	QPN         uint32 // QP number of the other side
	SendPSN     uint32 // PSN of the first packet that this side sends
	RecvPSN     uint32 // PSN of the first packet that it expects
	MTU         int    // path MTU: 256, 512, 1024, 2048 or 4096

	MaxRDAtomic     int // outstanding READs and atomics as requester
	MaxDestRDAtomic int // outstanding READs and atomics of the other side
	Timeout         int // acknowledgement timeout, 4.096 µs × 2^Timeout
	RetryCount      int // 7 means without limit in rxe
	RNRRetry        int // 7 means without limit
	MinRNRTimer     int // RNR timer code for the other side
}

// Defaults are counts and timers for a link without losses.
func Defaults() ConnectConfig {
	return ConnectConfig{MTU: 1024, MaxRDAtomic: 16, MaxDestRDAtomic: 16, Timeout: 17, RetryCount: 6, RNRRetry: 7, MinRNRTimer: 12}
}

// Connect moves the queue pair to RTS.
func (q *QP) Connect(c ConnectConfig) error {
	_, err := q.s.command(fmt.Sprintf(
		"connect qp=%d src=%s dst=%s qpn=%d psn=%d rpsn=%d mtu=%d rd=%d drd=%d timeout=%d retry=%d rnr=%d minrnr=%d",
		q.id, c.Source, c.Destination, c.QPN, c.SendPSN, c.RecvPSN, c.MTU,
		c.MaxRDAtomic, c.MaxDestRDAtomic, c.Timeout, c.RetryCount, c.RNRRetry, c.MinRNRTimer))
	return err
}

// Modify moves the queue pair to a state: "error", "reset", "init", "sqd" or "rts".
func (q *QP) Modify(state string) error {
	_, err := q.s.command(fmt.Sprintf("modify qp=%d state=%s", q.id, state))
	return err
}

// Op is the kind of a work request, as named by rxepeer.
type Op string

// The kinds of work request.
const (
	Recv             Op = "recv"
	Send             Op = "send"
	SendImm          Op = "send_imm"
	SendInvalidate   Op = "send_inv"
	Write            Op = "write"
	WriteImm         Op = "write_imm"
	Read             Op = "read"
	CompareSwap      Op = "cas"
	FetchAdd         Op = "fadd"
	bindWindow       Op = "bind"
	defaultBindRight    = Access("wra")
)

// Work is one work request, or Count requests that follow a rule: request i has ID+i and
// Imm+i, and starts at Off+i*Step in Buf and at RemoteAddr+i*RemoteStep.
type Work struct {
	Op    Op
	Count int // 0 means 1
	ID    uint64

	Buf  *Buffer // may be nil if Len is 0
	Off  int
	Len  int
	Step int
	SGEs int // number of pieces of the memory; 0 means 1

	RemoteAddr uint64
	RemoteStep uint64
	RKey       uint32

	Imm     uint32
	InvKey  uint32 // key for SendInvalidate
	Compare uint64 // CompareSwap: value to compare with; FetchAdd: value to add
	Swap    uint64

	Flags string // letters: f fence, e solicited event, i inline, u unsignaled
}

// Post posts the work. If it fails, the error names the request; those before it are
// posted.
func (q *QP) Post(w Work) error {
	_, err := q.post(w, "")
	return err
}

// Bind posts the binding of a window to n bytes of b at off, and returns the resulting
// rkey. The request completes like other work, with the given id.
func (q *QP) Bind(id uint64, w *Window, b *Buffer, off, n int, access Access) (rkey uint32, err error) {
	if access == "" {
		access = defaultBindRight
	}
	v, err := q.post(Work{Op: bindWindow, ID: id, Buf: b, Off: off, Len: n}, fmt.Sprintf(" mw=%d access=%s", w.id, access))
	return uint32(v.uint("rkey")), err
}

func (q *QP) post(w Work, more string) (values, error) {
	request := fmt.Sprintf("post qp=%d op=%s n=%d id=%d sges=%d", q.id, w.Op, max(w.Count, 1), w.ID, max(w.SGEs, 1))
	if w.Buf != nil {
		request += fmt.Sprintf(" %s step=%d", w.Buf.span(w.Off, w.Len), w.Step)
	}
	if w.Flags != "" {
		request += " flags=" + w.Flags
	}
	request += fmt.Sprintf(" raddr=%d rstep=%d rkey=%d imm=%d inv=%d cmp=%d swap=%d",
		w.RemoteAddr, w.RemoteStep, w.RKey, w.Imm, w.InvKey, w.Compare, w.Swap)
	return q.s.command(request + more)
}

// Completion is a work completion as returned by ibv_poll_cq.
type Completion struct {
	ID     uint64
	Status int // enum ibv_wc_status: 0 success, 4 local protection, 5 flushed, 10 remote access, 12 retries exceeded, …
	Opcode int // enum ibv_wc_opcode: 0 SEND, 1 WRITE, 2 READ, 3 CAS, 4 FADD, 5 BIND, 128 RECV, 129 RECV of WRITE with immediate
	Len    int
	QPN    uint32

	HasImm bool
	Imm    uint32
	HasInv bool
	InvKey uint32 // key that a SEND with invalidate revoked
}

// Wait returns the next n completions of the session's queue or, if the time ends first,
// those that have arrived.
func (s *Session) Wait(n int, limit time.Duration) ([]Completion, error) {
	v, err := s.commandWithin(limit+patience, fmt.Sprintf("wait n=%d ms=%d", n, limit.Milliseconds()), nil)
	if err != nil {
		return nil, err
	}
	completions := make([]Completion, v.uint("n"))
	for i := range completions {
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		w := parseValues(line)
		c := Completion{
			ID: w.uint("id"), Status: int(w.uint("status")), Opcode: int(w.uint("op")), Len: int(w.uint("len")),
			QPN: uint32(w.uint("qpn")), Imm: uint32(w.uint("imm")), InvKey: uint32(w.uint("inv")),
		}
		_, c.HasImm = w["imm"]
		_, c.HasInv = w["inv"]
		completions[i] = c
	}
	return completions, nil
}
