package adapter

import (
	"errors"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// DEVXObject is an object that a command made: a memory key, a PSV, a DEK or a login.
type DEVXObject struct {
	ctx    *Context
	kind   string
	number uint32

	mkey  *engine.MKey
	psvs  []uint32
	dek   *dek.DEK
	attr  prm.DEK // of dek, without the key
	login *dek.Login
	shown prm.Login // of login, without the credential
}

const maxAnswer = 1 << 16

// ErrCommand is the errno of a command that ran and failed: its answer has the status. It
// is Linux's EREMOTEIO, which other systems do not have.
const ErrCommand = syscall.Errno(121)

// answer makes the answer of a command that ended with err, and the error of the call.
func answer(outLen int, err error) ([]byte, error) {
	if err == nil {
		return prm.Answer(outLen, prm.CmdOK, 0), nil
	}
	status := prm.CmdBadParam
	switch {
	case errors.Is(err, syscall.EBUSY):
		status = prm.CmdResourceBusy
	case errors.Is(err, syscall.ENOMEM):
		status = prm.CmdNoResources
	case errors.Is(err, syscall.EOPNOTSUPP):
		status = prm.CmdBadOp
	case errors.Is(err, syscall.EPERM):
		status = prm.CmdBadSystemState
	}
	// The syndrome distinguishes failures with the same status. The reason in words
	// is in the error and in the trace.
	return prm.Answer(outLen, status, 0x50f7<<16|uint32(status)), &operr.Error{Op: "command", Errno: ErrCommand, Reason: "it failed", Err: err}
}

// checkCommand refuses commands that are no commands.
func checkCommand(in []byte, outLen int) error {
	const op = "command"
	switch {
	case len(in) < prm.CommandHeaderSize:
		return operr.New(op, syscall.EINVAL, "%d bytes: a command has at least %d", len(in), prm.CommandHeaderSize)
	case outLen < prm.CommandHeaderSize || outLen > maxAnswer:
		return operr.New(op, syscall.EINVAL, "room for %d bytes of the answer: must be %d to %d", outLen, prm.CommandHeaderSize, maxAnswer)
	}
	return nil
}

func notKnown(c prm.Command) error {
	return operr.New("command", syscall.EOPNOTSUPP, "%v is not supported here", c)
}

// ExecDEVX executes a command that makes no object, such as QUERY_HCA_CAP. An error is
// a command that was refused as a whole; a command that failed answers with its status
// and syndrome in out and errno EREMOTEIO.
func (c *Context) ExecDEVX(in []byte, outLen int) (out []byte, err error) {
	if err := checkCommand(in, outLen); err != nil {
		return nil, err
	}
	cmd, mod := prm.OpcodeOf(in)
	switch cmd {
	case prm.CmdQueryHCACap:
		out = prm.Answer(outLen, prm.CmdOK, 0)
		c.dev.caps().Put(out, prm.CapType(mod>>1))
	default:
		// The driver refuses commands that programs may not execute.
		err = operr.New("command", syscall.EINVAL, "%v is not supported", cmd)
	}
	c.refused("command", uint32(cmd), cmd.String(), err)
	return out, err
}

// CreateDEVX executes a command that makes an object.
func (c *Context) CreateDEVX(in []byte, outLen int) (o *DEVXObject, out []byte, err error) {
	if err := checkCommand(in, outLen); err != nil {
		return nil, nil, err
	}
	cmd, _ := prm.OpcodeOf(in)
	switch cmd {
	case prm.CmdCreateMKey:
		o, err = c.createMKey(in)
	case prm.CmdCreatePSV:
		o, err = c.createPSV(in)
	case prm.CmdCreateObject:
		o, err = c.createObject(in)
	default:
		err = operr.New("command", syscall.EINVAL, "%v makes no object that is supported", cmd)
		c.refused("command", uint32(cmd), cmd.String(), err)
		return nil, nil, err
	}
	if err == nil {
		err = enter(c, cmd.String(), c.objects, o)
	}
	out, failed := answer(outLen, err)
	if failed != nil {
		c.refused("command", uint32(cmd), cmd.String(), err)
		return nil, out, failed
	}
	switch cmd {
	case prm.CmdCreateMKey:
		prm.PutMKeyIndex(out, o.number>>8)
	case prm.CmdCreatePSV:
		prm.PutPSVs(out, o.psvs)
	default:
		prm.PutObjectID(out, o.number)
	}
	c.trace(TraceObject, o.kind, o.number, "create", nil)
	return o, out, nil
}

func (c *Context) createPSV(in []byte) (*DEVXObject, error) {
	const op = "CREATE_PSV"
	p := prm.ParseCreatePSV(in)
	if p.Count < 1 || p.Count > 4 {
		return nil, operr.New(op, syscall.EINVAL, "%d PSVs: must be 1 to 4", p.Count)
	}
	if c.pd(p.PD) == nil {
		return nil, operr.New(op, syscall.EINVAL, "PD %#x does not exist", p.PD)
	}
	o := &DEVXObject{ctx: c, kind: "psv"}
	c.mu.Lock()
	defer c.mu.Unlock()
	for range p.Count {
		n := c.dev.next.psv.Add(1) & 0xffffff
		o.psvs = append(o.psvs, n)
		c.psvs[n] = struct{}{}
	}
	o.number = o.psvs[0]
	return o, nil
}

func (c *Context) createObject(in []byte) (*DEVXObject, error) {
	const op = "CREATE_GENERAL_OBJECT"
	switch h := prm.ParseObject(in); h.Type {
	case prm.ObjectDEK:
		return c.createDEK(in)
	case prm.ObjectCryptoLogin:
		l := prm.ParseLogin(in)
		login, err := c.deks.NewLogin(dek.LoginAttr{CredentialID: l.Credential, ImportKEKID: l.KEK, Credential: l.Wrapped[:]})
		clear(l.Wrapped[:])
		if err != nil {
			return nil, err
		}
		return &DEVXObject{ctx: c, kind: "login", number: c.dev.next.object.Add(1) & 0xffffff, login: login, shown: prm.Login{Credential: l.Credential, KEK: l.KEK}}, nil
	default:
		return nil, operr.New(op, syscall.EOPNOTSUPP, "object type %#x is not supported", h.Type)
	}
}

func (c *Context) createDEK(in []byte) (*DEVXObject, error) {
	const op = "create a DEK"
	d := prm.ParseDEK(in)
	defer clear(d.Key[:])
	pd := c.pd(d.PD)
	switch {
	case pd == nil:
		return nil, operr.New(op, syscall.EINVAL, "PD %#x does not exist", d.PD)
	case d.Purpose != prm.KeyPurposeXTS:
		return nil, operr.New(op, syscall.EINVAL, "key purpose %d: must be %d (AES-XTS)", d.Purpose, prm.KeyPurposeXTS)
	case d.Size > 1:
		return nil, operr.New(op, syscall.EINVAL, "key size %d: must be 0 (128 bit) or 1 (256 bit)", d.Size)
	}
	a := dek.Attr{Size: dek.KeySize(d.Size), HasKeyTag: d.HasKeyTag, Opaque: d.Opaque, PD: pd.eng}
	n := a.Size.Bytes()
	if d.HasKeyTag {
		n += dek.KeyTagSize
	}
	if c.dev.store.Mode() == dek.Wrapped {
		n += 8 // of the key wrap
		a.Login = c.anyLogin()
	}
	a.Key = d.Key[:n]
	key, err := c.deks.NewDEK(a)
	if err != nil {
		return nil, err
	}
	shown := d
	clear(shown.Key[:])
	return &DEVXObject{ctx: c, kind: "dek", number: c.dev.next.object.Add(1) & 0xffffff, dek: key, attr: shown}, nil
}

// anyLogin returns a valid login object of the context, or nil: a program has one at a
// time, and the command that makes a DEK names none.
func (c *Context) anyLogin() *dek.Login {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.objects {
		if o.login == nil {
			continue
		}
		if st, err := o.login.State(); err == nil && st == dek.LoginValid {
			return o.login
		}
	}
	return nil
}

// Number returns the object's number in commands and requests.
func (o *DEVXObject) Number() uint32 { return o.number }

// Kind returns the object's kind: "mkey", "psv", "dek" or "login".
func (o *DEVXObject) Kind() string { return o.kind }

// Exec executes a command that asks or changes the object.
func (o *DEVXObject) Exec(in []byte, outLen int) ([]byte, error) {
	if err := checkCommand(in, outLen); err != nil {
		return nil, err
	}
	cmd, _ := prm.OpcodeOf(in)
	var fill func(out []byte)
	var err error
	switch {
	case cmd == prm.CmdQueryObject && o.dek != nil:
		var info dek.Info
		info, err = o.dek.Query()
		fill = func(out []byte) { prm.PutDEK(out, &o.attr, uint8(info.State)) }
	case cmd == prm.CmdQueryObject && o.login != nil:
		var st dek.LoginState
		st, err = o.login.State()
		fill = func(out []byte) { prm.PutLoginState(out, &o.shown, uint8(st)) }
	default:
		err = notKnown(cmd)
	}
	out, failed := answer(outLen, err)
	if failed != nil {
		o.ctx.refused(o.kind, o.number, cmd.String(), err)
		return out, failed
	}
	fill(out)
	return out, nil
}

// Close destroys the object. A DEK that memory keys name is gone for new configurations;
// its key material is wiped when the last of those keys lets go of it, since drivers
// destroy the two in any order.
func (o *DEVXObject) Close() error {
	var err error
	orphan := false
	switch {
	case o.mkey != nil:
		err = o.mkey.Close()
	case o.dek != nil:
		if err = o.dek.Close(); errors.Is(err, syscall.EBUSY) {
			orphan, err = true, nil
		}
	case o.login != nil:
		err = o.login.Close()
	}
	if err != nil {
		o.ctx.refused(o.kind, o.number, "destroy", err)
		return err
	}
	c := o.ctx
	c.mu.Lock()
	for _, n := range o.psvs {
		delete(c.psvs, n)
	}
	delete(c.objects, o)
	if orphan {
		c.orphans = append(c.orphans, o.dek)
	}
	c.mu.Unlock()
	if o.mkey != nil {
		c.closeOrphans()
		c.dev.mu.Lock()
		delete(c.dev.mkeys, o.number>>8)
		c.dev.mu.Unlock()
	}
	c.trace(TraceObject, o.kind, o.number, "destroy", nil)
	return nil
}

// closeOrphans closes the DEKs that were destroyed while memory keys used them and are
// not used any more.
func (c *Context) closeOrphans() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphans = slices.DeleteFunc(c.orphans, func(d *dek.DEK) bool { return d.Close() == nil })
}

// ExecOn executes a command on an object of the verbs: a *QP, *CQ, *SRQ or *MR.
func (c *Context) ExecOn(obj any, in []byte, outLen int) ([]byte, error) {
	if err := checkCommand(in, outLen); err != nil {
		return nil, err
	}
	cmd, _ := prm.OpcodeOf(in)
	q, isQP := obj.(*QP)
	if !isQP || cmd != prm.CmdQueryQP && cmd != prm.CmdInit2InitQP {
		err := operr.New("command", syscall.EINVAL, "%v is not supported on this object", cmd)
		c.refused("command", uint32(cmd), cmd.String(), err)
		return nil, err
	}
	var err error
	var ctx prm.QPContext
	switch n := prm.QPNOf(in); {
	case n != q.number:
		err = operr.New(cmd.String(), syscall.EINVAL, "QP %#x: the handle is of QP %#x", n, q.number)
	case cmd == prm.CmdInit2InitQP:
		err = q.eng.SetPipelining(prm.DrainSigErr(in))
	default:
		ctx = q.context()
	}
	out, failed := answer(outLen, err)
	if failed != nil {
		c.refused("qp", q.number, cmd.String(), err)
		return out, failed
	}
	if cmd == prm.CmdQueryQP {
		prm.PutQP(out, &ctx)
	}
	return out, nil
}

// context returns the contents of QUERY_QP. A program that asks has seen why the QP
// stopped.
func (q *QP) context() prm.QPContext {
	m := q.eng.Query()
	q.eng.Lock()
	defer q.eng.Unlock()
	ctx := prm.QPContext{
		PD: q.attr.PD.number, UserIndex: q.attr.UIDX, RemoteQPN: m.DestQPN, MTU: uint8(m.PathMTU), LogMsgMax: logMaxMsg, NextSendPSN: m.SQPSN,
		SendCQ: numberOf(q.attr.SendCQ), RecvCQ: numberOf(q.attr.RecvCQ), QKey: m.QKey, RetryCount: m.RetryCnt, RNRRetry: m.RNRRetry,
		HWSendBlock: q.sq.next, SWSendBlock: q.sq.rung, HWRecv: uint32(q.rq.next), SWRecv: uint32(q.rq.rung),
	}
	switch q.eng.StateLocked() {
	case rdma.StateInit:
		ctx.State = prm.QPStateInit
	case rdma.StateRTR:
		ctx.State = prm.QPStateRTR
	case rdma.StateRTS:
		ctx.State = prm.QPStateRTS
	case rdma.StateSQE:
		ctx.State = prm.QPStateSQErr
	case rdma.StateErr:
		ctx.State = prm.QPStateErr
	case rdma.StateSQD:
		ctx.State = prm.QPStateSQDrained
		if q.sq.inFlight() > 0 {
			ctx.State = prm.QPStateSQDrain
		}
	}
	return ctx
}
