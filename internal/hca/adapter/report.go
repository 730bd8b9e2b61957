package adapter

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// keyReports decides which bad blocks of a memory key are reported. The mutex of the key guards it.
//
// The driver counts the reports of a key that it has polled, from 1 and modulo 2, and puts its count into the next
// configuration of the key that it builds. After a report the key is silent until the driver has counted it. The driver
// repeats no count whose configuration was never posted (ibv_wr_abort). Therefore a configuration with a signature that
// begins after the report was polled ends the silence, too.
//
// A report that no CQ can take is kept until one can (mlx5dv_mkey_check(3): the first error is kept until it is queried).
type keyReports struct {
	memory, wire reportFormat // formats of the last configuration with a signature
	*reportState              // nil: no bad block was found yet. Programs make hundreds of thousands of keys
}

type reportState struct {
	count  bool           // the driver's count in the last configuration that has one
	odd    bool           // the number of reports is odd; the driver's count is even then
	silent bool           // there was a report, and nothing says yet that the driver has counted it
	at     uint32         // the number of completions of cq with the last report
	cq     *CQ            // that has the last report
	kept   *prm.SigErrCQE // the report of the first error, which no CQ has taken; nil: none
}

// reportFormat holds the properties of a signature that determine the report of a bad block.
type reportFormat struct {
	typ    sig.Type
	stride uint16 // bytes of a block and its field
}

// reportsBegan records what a configuration says about reports.
func (o *mkeyObject) reportsBegan(u *prm.UMR) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.reports
	if r.reportState != nil {
		counted := u.Mask&prm.MaskSigErr != 0
		if r.silent {
			r.silent = counted && u.SigErr == r.count && u.SigErr == r.odd || !counted && !(u.HasSignature && r.cq.polled(r.at))
		}
		if counted {
			r.count = u.SigErr
		}
	}
	if u.HasSignature {
		r.memory, r.wire = formatOfReport(&u.Signature.Memory), formatOfReport(&u.Signature.Wire)
	}
}

func formatOfReport(d *prm.SigDomain) reportFormat {
	return reportFormat{d.Type, uint16(d.Stride())}
}

// found makes a bad block the key's first error, unless the key has one. It returns why the bad block is not to be
// reported, or an empty string.
func (o *mkeyObject) found(q *QP, rec *mkey.BadBlock) (why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.reports
	if r.reportState == nil {
		r.reportState = &reportState{count: true}
	}
	switch {
	case r.silent && !r.cq.polled(r.at):
		return fmt.Sprintf("not reported: the key's last report waits in CQ %#x to be polled", r.cq.number)
	case r.silent:
		return "not reported: since its last report was polled, the key was not configured anew"
	case r.kept == nil:
		r.kept = r.describe(q, rec, o.number())
	}
	return ""
}

// describe returns the report of a bad block.
func (r *keyReports) describe(q *QP, rec *mkey.BadBlock, key uint32) *prm.SigErrCQE {
	format := r.wire
	if rec.Domain == mkey.MemoryDomain {
		format = r.memory
	}
	shift, syndrome := 0, uint16(prm.SigErrGuard)
	switch rec.Sig.Kind {
	case sig.BadRefTag:
		syndrome = prm.SigErrRefTag
	case sig.BadAppTag:
		syndrome, shift = prm.SigErrAppTag, 32
	case sig.BadGuard:
		shift = guardShift(format.typ)
	}
	cqe := &prm.SigErrCQE{
		Syndrome: syndrome, Expected: rec.Sig.Stored << shift, Actual: rec.Sig.Computed << shift,
		Memory: rec.Domain == mkey.MemoryDomain, MKey: key, Offset: rec.Sig.Offset, QPN: q.number,
	}
	if q.ctx.dev.cfg.AdapterReports {
		cqe.Expected, cqe.Actual = cqe.Actual, cqe.Expected
		cqe.Offset += uint64(format.stride) - 1
	}
	return cqe
}

// guardShift returns where the guard stands in the 64 bits of a report.
func guardShift(t sig.Type) int {
	if t == sig.T10DIF {
		return 48
	}
	return 64 - 8*sig.Format{Type: t}.FieldSize()
}

// deliver writes the report of the key's first error to a CQ. It returns false if the CQ does not take it.
func (o *mkeyObject) deliver(cq *CQ) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.reports
	if r.reportState == nil || r.kept == nil || !cq.push(r.kept, true) {
		return false
	}
	r.kept, r.silent, r.odd, r.cq, r.at = nil, true, !r.odd, cq, cq.lastReport()
	return true
}

// takeBack keeps a report that the driver has dropped from a CQ before it was polled.
func (o *mkeyObject) takeBack(cqe *prm.SigErrCQE) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.reports
	if r.reportState == nil {
		return // the program has written the report itself
	}
	r.silent, r.odd = false, !r.odd
	if r.kept == nil {
		r.kept = cqe
	}
}

// takeBackReports lets the keys of a context keep those reports of a list that are about them.
func takeBackReports(c *Context, list []prm.SigErrCQE) {
	for i := range list {
		if o := lookup(c, c.mkeys, list[i].MKey>>8); o != nil {
			o.takeBack(&list[i])
		}
	}
}

// deliverOwed delivers the reports that wait for a completion of an SRQ.
func (q *QP) deliverOwed(cq *CQ) {
	for index := range q.owed {
		if o := lookup(q.ctx, q.ctx.mkeys, index); o != nil {
			o.deliver(cq)
		}
	}
	clear(q.owed)
}

// BadSignature implements engine.Front. The report of a bad block goes to the CQ of the transfer. An XRC receive QP
// has none of its own: its reports wait for the next completion of an SRQ.
func (f *front) BadSignature(b *engine.BadSignature) {
	q := (*QP)(f)
	b.Key.Check() // makes the engine report the next bad block, too
	o := lookup(q.ctx, q.ctx.mkeys, b.Key.Number()>>8)
	if o == nil {
		return
	}
	rec := &b.Record
	cq := q.attr.SendCQ
	if b.Recv && q.attr.RecvCQ != nil {
		cq = q.attr.RecvCQ
	}
	fate := o.found(q, rec)
	reported := false
	switch {
	case fate != "":
	case cq == nil:
		if q.owed == nil {
			q.owed = make(map[uint32]struct{})
		}
		q.owed[b.Key.Number()>>8] = struct{}{}
		fate = "the report waits for the next receive of the XRC domain"
	default:
		reported = o.deliver(cq)
		fate = fmt.Sprintf("the report is in CQ %#x: mlx5dv_mkey_check knows it once that is polled", cq.number)
		if !reported {
			fate = fmt.Sprintf("not reported yet: CQ %#x takes no completions; the key's next bad block makes the report on another CQ", cq.number)
		}
	}
	if q.ctx.tracing() {
		q.ctx.trace(TraceSignature, "mkey", b.Key.Number(), rec.Sig.Kind.String(), fmt.Errorf("%w; %s", rec, fate),
			value("qp", q.number), value("domain", rec.Domain.String()), value("block", rec.Sig.Block), value("offset", rec.Sig.Offset),
			value("stored", rec.Sig.Stored), value("computed", rec.Sig.Computed), value("reported", reported))
	}
}
