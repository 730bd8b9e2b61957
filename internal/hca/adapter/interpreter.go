package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// foreign is the refusal of a command that names another user's object.
func foreign(kind prm.Object, number uint32) error {
	return refuse(prm.CmdBadResource, synForeignObject, "%s %#x was made by another user", kind, number)
}

const (
	header    = prm.CommandHeaderSize
	maxAnswer = 1 << 16
)

// handlers are the functions that execute the commands.
var handlers map[prm.Command]func(*Context, *prm.Call) error

func init() {
	handlers = map[prm.Command]func(*Context, *prm.Call) error{
		prm.CmdQueryHCACap:   queryHCACap,
		prm.CmdQueryNICVPort: queryNICVPort,
		prm.CmdQueryLAG:      queryLAG,
		prm.CmdAllocPD:       allocPD,
		prm.CmdDeallocPD:     destroyer(func(c *Context) map[uint32]*PD { return c.pds }),
		prm.CmdAllocDomain:   allocDomain,
		prm.CmdDeallocDomain: destroyer(func(c *Context) map[uint32]*domain { return c.domains }),
		prm.CmdAllocXRCD:     allocXRCD,
		prm.CmdDeallocXRCD:   destroyer(func(c *Context) map[uint32]*XRCD { return c.xrcds }),
		prm.CmdCreateUmem:    createUmem,
		prm.CmdDestroyUmem:   destroyer(func(c *Context) map[uint32]*Umem { return c.umems }),
		prm.CmdCreateCQ:      createCQ,
		prm.CmdDestroyCQ:     destroyer(func(c *Context) map[uint32]*CQ { return c.cqs }),
		prm.CmdQueryCQ:       on((*Context).cq, (*CQ).queryCQ),
		prm.CmdModifyCQ:      on((*Context).cq, (*CQ).modifyCQ),
		prm.CmdCreateQP:      createQP,
		prm.CmdDestroyQP:     destroyer(func(c *Context) map[uint32]*QP { return c.qps }),
		prm.CmdRst2InitQP:    on((*Context).qp, (*QP).changeQP),
		prm.CmdInit2InitQP:   on((*Context).qp, (*QP).changeQP),
		prm.CmdInit2RTRQP:    on((*Context).qp, (*QP).changeQP),
		prm.CmdRTR2RTSQP:     on((*Context).qp, (*QP).changeQP),
		prm.CmdRTS2RTSQP:     on((*Context).qp, (*QP).changeQP),
		prm.CmdSQErr2RTSQP:   on((*Context).qp, (*QP).changeQP),
		prm.CmdSQD2RTSQP:     on((*Context).qp, (*QP).changeQP),
		prm.CmdToErrQP:       on((*Context).qp, (*QP).changeQP),
		prm.CmdToRstQP:       on((*Context).qp, (*QP).changeQP),
		prm.CmdQueryQP:       on((*Context).qp, (*QP).queryQP),
		prm.CmdAttachMCG:     on((*Context).qp, (*QP).attachMCG),
		prm.CmdDetachMCG:     on((*Context).qp, (*QP).detachMCG),
		prm.CmdCreateRMP:     createRMP,
		prm.CmdDestroyRMP:    destroyer(func(c *Context) map[uint32]*SRQ { return c.srqs }),
		prm.CmdModifyRMP:     on(srqOf(srqBasic), (*SRQ).modifyRMP),
		prm.CmdQueryRMP:      on(srqOf(srqBasic), (*SRQ).queryRMP),
		prm.CmdCreateDCT:     createDCT,
		prm.CmdDestroyDCT:    destroyer(func(c *Context) map[uint32]*QP { return c.qps }),
		prm.CmdDrainDCT:      on((*Context).dct, (*QP).drainDCT),
		prm.CmdQueryDCT:      on((*Context).dct, (*QP).queryDCT),
		prm.CmdCreateXRCSRQ:  createXRCSRQ,
		prm.CmdDestroyXRCSRQ: destroyer(func(c *Context) map[uint32]*SRQ { return c.srqs }),
		prm.CmdArmXRCSRQ:     on(srqOf(srqXRC), (*SRQ).armXRCSRQ),
		prm.CmdQueryXRCSRQ:   on(srqOf(srqXRC), (*SRQ).queryXRCSRQ),
		prm.CmdCreateMKey:    createMKey,
		prm.CmdDestroyMKey:   destroyer(func(c *Context) map[uint32]*mkeyObject { return c.mkeys }),
		prm.CmdCreatePSV:     createPSV,
		prm.CmdDestroyPSV:    destroyer(func(c *Context) map[uint32]*psv { return c.psvs }),
		prm.CmdCreateObject:  onObject,
		prm.CmdQueryObject:   onObject,
		prm.CmdDestroyObject: onObject,
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
		return nil, c.refused("command", uint32(cmd), cmd.String(), err)
	}
	x := &prm.Call{Command: cmd, Mod: mod, UID: uid, In: in, Out: make([]byte, outLen)}
	if err = c.exec(x); err == nil {
		return x.Out, nil
	}
	r := refusalOf(err)
	clear(x.Out)
	prm.PutStatus(x.Out, r.status, uint32(r.syndrome))
	c.refused("command", uint32(cmd), cmd.String(), r)
	return x.Out, failed(cmd, r)
}

func (c *Context) exec(x *prm.Call) error {
	do, spec, caller := handlers[x.Command], x.Command.Spec(), prm.ByProgram
	if c.guest {
		caller = prm.ByDriver
	}
	switch {
	case len(x.In) < header:
		return refuse(prm.CmdBadInputLen, synShortInput, "%d bytes: a command has at least %d", len(x.In), header)
	case do == nil || !spec.Has(caller):
		return refuse(prm.CmdBadOp, synOpcode, "%v is not supported", x.Command)
	case len(x.In) < spec.In:
		return refuse(prm.CmdBadInputLen, synShortInput, "%d bytes: the command has at least %d", len(x.In), spec.In)
	case len(x.In) > spec.Most:
		return refuse(prm.CmdBadInputLen, synLongInput, "%d bytes: the command has at most %d", len(x.In), spec.Most)
	case len(x.Out) < spec.Out:
		return refuse(prm.CmdBadOutputLen, synShortOutput, "room for %d bytes: the answer has %d", len(x.Out), spec.Out)
	}
	if ctx := x.Command.Context(); ctx != nil {
		if why := ctx.Check(x.In, c.guest && x.UID == 0); why != "" {
			return refuse(prm.CmdBadParam, synField, "%s", why)
		}
	}
	return do(c, x)
}

// answer writes the number of a new object to the answer.
func answer(x *prm.Call, o interface{ Number() uint32 }, err error) error {
	if err == nil {
		prm.PutNumber(x.Out, o.Number())
	}
	return err
}

// owned is an object of a table that a command can destroy.
type owned interface {
	comparable
	Close() error
	owner() uint16
}

// find returns the object of a table that a command names.
func find[T owned](c *Context, x *prm.Call, kind prm.Object, table map[uint32]T, number uint32) (o T, err error) {
	var none T
	switch o = lookup(c, table, number); {
	case o == none:
		err = missing(kind, number)
	case !x.May(o.owner()):
		err = foreign(kind, number)
	}
	return o, err
}

// on returns the function that does something to the object that a command names, which find finds.
func on[T any](find func(*Context, *prm.Call, uint32) (T, error), do func(T, *prm.Call) error) func(*Context, *prm.Call) error {
	return func(c *Context, x *prm.Call) error {
		o, err := find(c, x, prm.NumberOf(x.In))
		if err != nil {
			return err
		}
		return do(o, x)
	}
}

// destroyer returns the function that destroys the object that a command names.
func destroyer[T owned](table func(*Context) map[uint32]T) func(*Context, *prm.Call) error {
	return on(func(c *Context, x *prm.Call, number uint32) (T, error) {
		return find(c, x, x.Command.Spec().Object, table(c), number)
	}, destroyed[T])
}

// destroyed destroys the object that a command names.
func destroyed[T owned](o T, _ *prm.Call) error { return o.Close() }

// domain is a transport domain, which Ethernet queues join. Drivers of Ethernet make one when
// they start. The device has no such queues for programs, so that nothing else names it.
type domain struct {
	object
}

func allocDomain(c *Context, x *prm.Call) error {
	d := &domain{object: object{ctx: c, number: newNumber(c, &c.dev.next.domain, c.domains), uid: x.UID}}
	return answer(x, d, enter(c, x.Command.String(), c.domains, d.number, d))
}

// HasDomain reports whether a command has made a transport domain with that number.
func (c *Context) HasDomain(number uint32) bool { return lookup(c, c.domains, number) != nil }

// Close frees the domain.
func (d *domain) Close() error {
	leave(d.ctx, d.ctx.domains, d.number)
	return nil
}

func queryHCACap(c *Context, x *prm.Call) error {
	caps := c.dev.Caps()
	if c.guest {
		// A kernel's driver waits for events of DCTs and of pages, which guests do not get.
		caps.DC, caps.ODP = false, prm.ODP{}
	}
	caps.Put(x.Out, prm.CapType(x.Mod>>1))
	return nil
}

// queryNICVPort answers that RoCE is enabled.
func queryNICVPort(c *Context, x *prm.Call) error {
	prm.PutRoCEEnabled(x.Out)
	return nil
}

// queryLAG answers that there is no link aggregation, with zeros.
func queryLAG(_ *Context, _ *prm.Call) error { return nil }

func allocPD(c *Context, x *prm.Call) error {
	pd, err := c.AllocPD()
	if err == nil {
		pd.uid = x.UID
	}
	return answer(x, pd, err)
}

// pd returns the PD that a command names.
func (c *Context) pd(x *prm.Call, number uint32) (*PD, error) { return find(c, x, "PD", c.pds, number) }

// cq returns the CQ that a command names.
func (c *Context) cq(x *prm.Call, number uint32) (*CQ, error) {
	return find(c, x, prm.OfCQ, c.cqs, number)
}

// qp returns the QP that a command names.
func (c *Context) qp(x *prm.Call, number uint32) (*QP, error) {
	return find(c, x, prm.OfQP, c.qps, number)
}

// srqOf returns the function that finds the SRQ of a type with a number.
func srqOf(typ int) func(*Context, *prm.Call, uint32) (*SRQ, error) {
	return func(c *Context, x *prm.Call, number uint32) (*SRQ, error) {
		kind := x.Command.Spec().Object
		s, err := find(c, x, kind, c.srqs, number)
		if err == nil && s.attr.Type != typ {
			err = missing(kind, number)
		}
		return s, err
	}
}

// uar returns the UAR that a command names.
func (c *Context) uar(number uint32) (*UAR, error) {
	if u := lookup(c, c.uars, number); u != nil {
		return u, nil
	}
	return nil, missing("UAR", number)
}
