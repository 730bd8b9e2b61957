package adapter

import (
	"cmp"
	"errors"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// The commands on general objects: data encryption keys and logins.

// dekObject is a data encryption key of a command.
type dekObject struct {
	object
	key   *dek.DEK
	shown prm.DEK // without the key
}

// loginObject is a login of a command.
type loginObject struct {
	object
	login *dek.Login
	shown prm.Login // without the credential
}

// objectHandlers are the functions that execute the commands on general objects, by the type of the object.
var objectHandlers = map[uint16]map[prm.Command]func(*Context, *prm.Call) error{
	prm.ObjectDEK: {
		prm.CmdCreateObject: createDEK, prm.CmdQueryObject: on(dekOf, (*dekObject).query), prm.CmdDestroyObject: on(dekOf, destroyed[*dekObject]),
	},
	prm.ObjectCryptoLogin: {
		prm.CmdCreateObject: createLogin, prm.CmdQueryObject: on(loginOf, (*loginObject).query), prm.CmdDestroyObject: on(loginOf, destroyed[*loginObject]),
	},
}

// onObject executes a command on a general object, whose modifier is the object's type.
func onObject(c *Context, x *prm.Call) error {
	do := objectHandlers[x.Mod][x.Command]
	if do == nil {
		return refuse(prm.CmdBadParam, synNotSupported, "object type %#x is not supported", x.Mod)
	}
	return do(c, x)
}

// dekOf returns the DEK that a command on general objects names.
func dekOf(c *Context, x *prm.Call, _ uint32) (*dekObject, error) {
	return find(c, x, "DEK", c.dekObjects, prm.ObjectIDOf(x.In))
}

// loginOf returns the login that a command on general objects names.
func loginOf(c *Context, x *prm.Call, _ uint32) (*loginObject, error) {
	return find(c, x, "login", c.logins, prm.ObjectIDOf(x.In))
}

func createLogin(c *Context, x *prm.Call) error {
	l := prm.ParseLogin(x.In)
	login, err := c.deks.NewLogin(l.Credential, l.KEK, l.Wrapped[:])
	clear(l.Wrapped[:])
	if err != nil {
		return err
	}
	o := &loginObject{object: object{ctx: c, number: newNumber(c, &c.dev.next.object, c.logins), uid: x.UID}, login: login, shown: l}
	if err := enter(c, x.Command.String(), c.logins, o.number, o); err != nil {
		login.Close()
		return err
	}
	c.mu.Lock()
	c.login = o
	c.mu.Unlock()
	c.trace(TraceObject, "login", o.number, "create", nil)
	prm.PutObjectID(x.Out, o.number)
	return nil
}

// anyLogin returns a valid login of a user, or nil: a program has one at a time, and the
// command that makes a DEK names none.
func (c *Context) anyLogin(uid uint16) *dek.Login {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login.valid() && c.login.uid == uid {
		return c.login.login
	}
	for _, o := range c.logins {
		if o.valid() && o.uid == uid {
			c.login = o
			return o.login
		}
	}
	return nil
}

func (o *loginObject) valid() bool { return o != nil && o.login.Valid() }

// Close ends the login.
func (o *loginObject) Close() error {
	if err := o.login.Close(); err != nil {
		return err
	}
	leave(o.ctx, o.ctx.logins, o.number)
	o.ctx.trace(TraceObject, "login", o.number, "destroy", nil)
	return nil
}

func createDEK(c *Context, x *prm.Call) error {
	d := prm.ParseDEK(x.In)
	defer clear(d.Key[:])
	pd, err := c.pd(x, d.PD)
	switch {
	case err != nil:
		return err
	case d.Purpose != prm.KeyPurposeXTS:
		return refuse(prm.CmdBadParam, synValue, "key purpose %d: must be %d (AES-XTS)", d.Purpose, prm.KeyPurposeXTS)
	case d.Size > 1:
		return refuse(prm.CmdBadParam, synValue, "key size %d: must be 0 (128 bit) or 1 (256 bit)", d.Size)
	}
	a := dek.DEKOptions{PD: pd.eng}
	n := dek.KeySize(d.Size).Bytes()
	if d.HasKeyTag {
		n += dek.KeyTagSize
	}
	if c.dev.store.Mode() == dek.Wrapped {
		n += 8 // of the key wrap
		if a.Login = c.anyLogin(x.UID); a.Login == nil {
			return refuse(prm.CmdBadSystemState, synNoLogin, "the device's import mode is wrapped, and the program has no valid login")
		}
	}
	key, err := c.deks.NewDEK(d.Key[:n], &a)
	if err != nil {
		return err
	}
	o := &dekObject{object: object{ctx: c, number: newNumber(c, &c.dev.next.object, c.dekObjects), uid: x.UID}, key: key, shown: d}
	clear(o.shown.Key[:])
	if err := enter(c, x.Command.String(), c.dekObjects, o.number, o); err != nil {
		key.Close()
		return err
	}
	var fields []Field
	if keydoor.EqualHalves(key) {
		// FIPS 140-3 forbids such a key. Adapters take it, and drivers' test vectors have it.
		fields = append(fields, value("equal_halves", true))
	}
	c.trace(TraceObject, "dek", o.number, "create", nil, fields...)
	prm.PutObjectID(x.Out, o.number)
	return nil
}

// Close destroys the DEK. A DEK that memory keys name is gone for new configurations; its key
// material is wiped when the last of those keys lets go of it, since drivers destroy the two
// in any order.
func (o *dekObject) Close() error {
	c := o.ctx
	err := o.key.Close()
	orphan := errors.Is(err, syscall.EBUSY)
	if err != nil && !orphan {
		return err
	}
	c.mu.Lock()
	delete(c.dekObjects, o.number)
	if orphan {
		c.orphans = append(c.orphans, o.key)
	}
	c.mu.Unlock()
	c.trace(TraceObject, "dek", o.number, "destroy", nil)
	return nil
}

// DEKInfo names a data encryption key that a command of a context has made.
type DEKInfo struct {
	Context *Context
	Number  uint32
	Bits    int // 128 or 256
}

// DEKs returns the data encryption keys of all contexts, by number.
func (d *Device) DEKs() (list []DEKInfo) {
	for _, o := range d.dekObjects() {
		list = append(list, DEKInfo{o.ctx, o.number, 4 * o.key.Size().Bytes()})
	}
	slices.SortFunc(list, func(a, b DEKInfo) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// FailDEK puts the data encryption key with a number into state error. ENOENT: there is none.
func (d *Device) FailDEK(number uint32) error {
	for _, o := range d.dekObjects() {
		if o.number == number {
			err := o.key.Fail()
			o.ctx.trace(TraceObject, "dek", number, "fail", err)
			return err
		}
	}
	return failure.New("dek fail", syscall.ENOENT, "DEK %#x does not exist", number)
}

func (d *Device) dekObjects() (all []*dekObject) {
	for _, c := range d.all() {
		all = append(all, snapshot(c, c.dekObjects)...)
	}
	return all
}

// closeOrphans closes the DEKs that were destroyed while memory keys used them and are
// not used any more.
func (c *Context) closeOrphans() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orphans) > 0 {
		c.orphans = slices.DeleteFunc(c.orphans, func(d *dek.DEK) bool { return d.Close() == nil })
	}
}

// dek returns the data encryption key with a number, if keys of the domain may use it.
func (c *Context) dek(number uint32, pd *PD) (*dek.DEK, error) {
	o := lookup(c, c.dekObjects, number)
	if o == nil {
		return nil, missing("DEK", number)
	}
	if err := o.key.UsableBy(c.deks, pd.eng); err != nil {
		return nil, err
	}
	return o.key, nil
}

// query executes QUERY_GENERAL_OBJECT.
func (o *dekObject) query(x *prm.Call) error {
	state := uint8(0) // ready
	if err := o.key.Check(); errors.Is(err, syscall.EIO) {
		state = 1 // error
	} else if err != nil {
		return err
	}
	prm.PutDEK(x.Out, &o.shown, state)
	return nil
}

// query executes QUERY_GENERAL_OBJECT.
func (o *loginObject) query(x *prm.Call) error {
	prm.PutLoginState(x.Out, &o.shown, o.login.Valid())
	return nil
}
