package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// call is one command while it is executed.
type call struct {
	uid     uint16
	cmd     prm.Command
	mod     uint16
	in, out []byte
}

// may reports whether the caller may use an object that a command of owner made.
func (x *call) may(owner uint16) bool { return x.uid == 0 || x.uid == owner }

// foreign is the refusal of a command that names another user's object.
func foreign(kind string, number uint32) error {
	return refuse(prm.CmdBadResource, synForeignObject, "%s %#x was made by another user", kind, number)
}

// commandSpec is a command that the interpreter knows: the bytes that its input has at least
// and at most, those that its answer needs, and the function that executes it.
type commandSpec struct {
	in, most, out int
	do            func(*Context, *call) error
}

const (
	header    = prm.CommandHeaderSize
	maxAnswer = 1 << 16
	maxInput  = 1 << 20
	qpCommand = 0x110 // bytes of a command with a QP's context
	qpMost    = 0x1d0 // with the context's extension
)

var commands map[prm.Command]commandSpec

func init() {
	commands = map[prm.Command]commandSpec{
		prm.CmdQueryHCACap:   {header, header, header, (*Context).queryHCACap},
		prm.CmdQueryNICVPort: {header, header, 0x14, (*Context).queryNICVPort},
		prm.CmdQueryLAG:      {header, header, header, (*Context).queryLAG},
		prm.CmdAllocPD:       {header, header, header, (*Context).allocPD},
		prm.CmdDeallocPD:     {header, header, header, (*Context).deallocPD},
		prm.CmdAllocDomain:   {header, header, header, notGuest((*Context).allocDomain)},
		prm.CmdDeallocDomain: {header, header, header, notGuest(destroyer("transport domain", func(c *Context) map[uint32]*domain { return c.domains }))},
		prm.CmdCreateUmem:    {0x30, maxInput, header, (*Context).createUmem},
		prm.CmdDestroyUmem:   {header, header, header, destroyer("umem", func(c *Context) map[uint32]*Umem { return c.umems })},
		prm.CmdCreateCQ:      {0x60, maxInput, header, (*Context).commandCreateCQ},
		prm.CmdDestroyCQ:     {header, header, header, destroyer("CQ", func(c *Context) map[uint32]*CQ { return c.cqs })},
		prm.CmdCreateQP:      {qpCommand, maxInput, header, (*Context).commandCreateQP},
		prm.CmdDestroyQP:     {header, header, header, destroyer("QP", func(c *Context) map[uint32]*QP { return c.qps })},
		prm.CmdRst2InitQP:    {qpCommand - 0x10, qpMost, header, (*Context).changeQP},
		prm.CmdInit2InitQP:   {0x20, qpMost, header, (*Context).changeQP},
		prm.CmdInit2RTRQP:    {qpCommand - 0x10, qpMost, header, (*Context).changeQP},
		prm.CmdRTR2RTSQP:     {qpCommand - 0x10, qpMost, header, (*Context).changeQP},
		prm.CmdRTS2RTSQP:     {qpCommand - 0x10, qpMost, header, guestOnly((*Context).changeQP)},
		prm.CmdSQErr2RTSQP:   {qpCommand - 0x10, qpMost, header, guestOnly((*Context).changeQP)},
		prm.CmdSQD2RTSQP:     {qpCommand - 0x10, qpMost, header, guestOnly((*Context).changeQP)},
		prm.CmdToErrQP:       {header, header, header, (*Context).changeQP},
		prm.CmdToRstQP:       {header, header, header, (*Context).changeQP},
		prm.CmdQueryQP:       {header, header, qpCommand - 0x10, (*Context).queryQP},
		prm.CmdAttachMCG:     {0x20, 0x20, header, guestOnly((*Context).attachMCG)},
		prm.CmdDetachMCG:     {0x20, 0x20, header, guestOnly((*Context).detachMCG)},
		prm.CmdCreateRMP:     {0x88, maxInput, header, (*Context).createRMP},
		prm.CmdDestroyRMP:    {header, header, header, destroyer("RMP", func(c *Context) map[uint32]*SRQ { return c.srqs })},
		prm.CmdModifyRMP:     {0x110, maxInput, header, guestOnly((*Context).modifyRMP)},
		prm.CmdQueryRMP:      {header, header, 0x110, guestOnly((*Context).queryRMP)},
		prm.CmdCreateDCT:     {0x50, maxInput, header, notGuest((*Context).createDCT)},
		prm.CmdDestroyDCT:    {header, header, header, destroyer("DCT", func(c *Context) map[uint32]*QP { return c.qps })},
		prm.CmdDrainDCT:      {header, header, header, (*Context).drainDCT},
		prm.CmdQueryDCT:      {header, header, 0x50, (*Context).queryDCT},
		prm.CmdModifyCQ:      {0x30, maxInput, header, guestOnly((*Context).modifyCQ)},
		prm.CmdCreateXRCSRQ:  {0x110, maxInput, header, guestOnly((*Context).createXRCSRQ)},
		prm.CmdDestroyXRCSRQ: {header, header, header, destroyer("XRC SRQ", func(c *Context) map[uint32]*SRQ { return c.srqs })},
		prm.CmdArmXRCSRQ:     {header, header, header, guestOnly((*Context).armXRCSRQ)},
		prm.CmdQueryXRCSRQ:   {header, header, 0x70, guestOnly((*Context).queryXRCSRQ)},
		prm.CmdCreateMKey:    {0x50, maxInput, header, (*Context).createMKey},
		prm.CmdDestroyMKey:   {header, header, header, destroyer("memory key with index", func(c *Context) map[uint32]*mkeyObject { return c.mkeys })},
		prm.CmdCreatePSV:     {header, header, 0x20, (*Context).createPSV},
		prm.CmdDestroyPSV:    {header, header, header, destroyer("PSV", func(c *Context) map[uint32]*psv { return c.psvs })},
		prm.CmdCreateObject:  {header, maxInput, header, (*Context).createObject},
		prm.CmdQueryObject:   {header, header, header, (*Context).queryObject},
		prm.CmdDestroyObject: {header, header, header, (*Context).destroyObject},
	}
}

// Exec executes a firmware command of a user of the device and returns its answer of outLen
// bytes. uid is the user: 0 may use every object of the context, another one those that its
// own commands made. A command that was refused has its status and syndrome in the answer,
// and err is ErrCommand with the reason in words. There is no answer if it has less room than
// a header.
func (c *Context) Exec(uid uint16, in []byte, outLen int) (out []byte, err error) {
	cmd, mod := prm.OpcodeOf(in)
	if outLen < header || outLen > maxAnswer {
		err := failure.New("command", syscall.EINVAL, "%v: room for %d bytes of the answer: must be %d to %d", cmd, outLen, header, maxAnswer)
		c.refused("command", uint32(cmd), cmd.String(), err)
		return nil, err
	}
	x := &call{uid: uid, cmd: cmd, mod: mod, in: in, out: make([]byte, outLen)}
	if err = c.exec(x); err == nil {
		return x.out, nil
	}
	r := refusalOf(err)
	clear(x.out)
	prm.PutStatus(x.out, r.status, uint32(r.syndrome))
	c.refused("command", uint32(cmd), cmd.String(), r)
	return x.out, failed(cmd, r)
}

func (c *Context) exec(x *call) error {
	s, known := commands[x.cmd]
	switch {
	case len(x.in) < header:
		return refuse(prm.CmdBadInputLen, synShortInput, "%d bytes: a command has at least %d", len(x.in), header)
	case !known:
		return refuse(prm.CmdBadOp, synOpcode, "%v is not supported", x.cmd)
	case len(x.in) < s.in:
		return refuse(prm.CmdBadInputLen, synShortInput, "%d bytes: the command has at least %d", len(x.in), s.in)
	case len(x.in) > s.most:
		return refuse(prm.CmdBadInputLen, synLongInput, "%d bytes: the command has at most %d", len(x.in), s.most)
	case len(x.out) < s.out:
		return refuse(prm.CmdBadOutputLen, synShortOutput, "room for %d bytes: the answer has %d", len(x.out), s.out)
	}
	return s.do(c, x)
}

// owned is an object of a table that a command can destroy.
type owned interface {
	Close() error
	owner() uint16
}

// destroyer returns the function that destroys the object that a command names.
func destroyer[T interface {
	comparable
	owned
}](kind string, table func(*Context) map[uint32]T) func(*Context, *call) error {
	return func(c *Context, x *call) error {
		n := prm.NumberOf(x.in)
		o := lookup(c, table(c), n)
		var none T
		switch {
		case o == none:
			return missing(kind, n)
		case !x.may(o.owner()):
			return foreign(kind, n)
		}
		return o.Close()
	}
}

// guestOnly returns the function of a command that only a guest's driver has.
func guestOnly(do func(*Context, *call) error) func(*Context, *call) error {
	return func(c *Context, x *call) error {
		if !c.guest {
			return refuse(prm.CmdBadOp, synOpcode, "%v is a command of kernel drivers", x.cmd)
		}
		return do(c, x)
	}
}

// notGuest returns the function of a command that guests do not have.
func notGuest(do func(*Context, *call) error) func(*Context, *call) error {
	return func(c *Context, x *call) error {
		if c.guest {
			return refuse(prm.CmdBadOp, synOpcode, "%v is not supported for guests", x.cmd)
		}
		return do(c, x)
	}
}

func (u *Umem) owner() uint16        { return u.uid }
func (q *CQ) owner() uint16          { return q.uid }
func (q *QP) owner() uint16          { return q.uid }
func (s *SRQ) owner() uint16         { return s.uid }
func (o *mkeyObject) owner() uint16  { return o.uid }
func (p *psv) owner() uint16         { return p.uid }
func (o *dekObject) owner() uint16   { return o.uid }
func (o *loginObject) owner() uint16 { return o.uid }
func (p *PD) owner() uint16          { return p.uid }
func (d *domain) owner() uint16      { return d.uid }

// domain is a transport domain, which Ethernet queues join. Drivers of Ethernet make one when
// they start. The device has no such queues for programs, so that nothing else names it.
type domain struct {
	ctx    *Context
	number uint32
	uid    uint16
}

func (c *Context) allocDomain(x *call) error {
	d := &domain{ctx: c, number: newNumber(c, &c.dev.next.domain, c.domains), uid: x.uid}
	if err := enter(c, x.cmd.String(), c.domains, d.number, d); err != nil {
		return err
	}
	prm.PutNumber(x.out, d.number)
	return nil
}

// Close frees the domain.
func (d *domain) Close() error {
	leave(d.ctx, d.ctx.domains, d.number)
	return nil
}

func (c *Context) queryHCACap(x *call) error {
	caps := c.dev.Caps()
	if c.guest {
		// A kernel's driver waits for events of DCTs and of pages, which guests do not get.
		caps.DC, caps.ODP = false, prm.ODP{}
	}
	caps.Put(x.out, prm.CapType(x.mod>>1))
	return nil
}

// queryNICVPort answers that RoCE is enabled.
func (c *Context) queryNICVPort(x *call) error {
	prm.PutRoCEEnabled(x.out)
	return nil
}

// queryLAG answers that there is no link aggregation, with zeros.
func (c *Context) queryLAG(*call) error { return nil }

func (c *Context) allocPD(x *call) error {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	pd.uid = x.uid
	prm.PutNumber(x.out, pd.number)
	return nil
}

func (c *Context) deallocPD(x *call) error {
	pd, err := c.pd(x, prm.NumberOf(x.in))
	if err != nil {
		return err
	}
	return pd.Close()
}

// pd returns the PD that a command names.
func (c *Context) pd(x *call, number uint32) (*PD, error) {
	pd := lookup(c, c.pds, number)
	switch {
	case pd == nil:
		return nil, missing("PD", number)
	case !x.may(pd.uid):
		return nil, foreign("PD", number)
	}
	return pd, nil
}

// cq returns the CQ that a command names.
func (c *Context) cq(x *call, number uint32) (*CQ, error) {
	q := lookup(c, c.cqs, number)
	switch {
	case q == nil:
		return nil, missing("CQ", number)
	case !x.may(q.uid):
		return nil, foreign("CQ", number)
	}
	return q, nil
}

// qp returns the QP that a command names.
func (c *Context) qp(x *call, number uint32) (*QP, error) {
	q := lookup(c, c.qps, number)
	switch {
	case q == nil:
		return nil, missing("QP", number)
	case !x.may(q.uid):
		return nil, foreign("QP", number)
	}
	return q, nil
}

// srq returns the SRQ of a type that a command names.
func (c *Context) srq(x *call, kind string, typ int) (*SRQ, error) {
	number := prm.NumberOf(x.in)
	s := lookup(c, c.srqs, number)
	switch {
	case s == nil || s.attr.Type != typ:
		return nil, missing(kind, number)
	case !x.may(s.uid):
		return nil, foreign(kind, number)
	}
	return s, nil
}

// uar returns the UAR that a command names.
func (c *Context) uar(number uint32) (*UAR, error) {
	if u := lookup(c, c.uars, number); u != nil {
		return u, nil
	}
	return nil, missing("UAR", number)
}
