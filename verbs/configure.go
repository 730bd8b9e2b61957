package verbs

import (
	"syscall"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/roce"
)

// MKeyConfFlags are the flags of a configuration (struct mlx5dv_mkey_conf_attr).
type MKeyConfFlags = mkey.UpdateFlags

// MKeyConfResetSignature drops the signature attributes that a key has.
const MKeyConfResetSignature = mkey.ResetSignature

// MKeyConfAttr are the attributes of [Chain.ConfigureAttr].
type MKeyConfAttr struct {
	Flags    MKeyConfFlags
	CompMask uint64 // must be 0
}

// Strided is an entry of an interleaved layout (struct mlx5dv_mr_interleaved).
type Strided struct {
	Addr       uint64
	BytesCount uint32 // used in each turn
	BytesSkip  uint32 // passed over before the next turn
	LKey       uint32
}

// Configure begins a request that configures a memory key. The setters Access,
// List, Interleaved, Signature and Crypto follow, each at most once; what none of
// them sets is kept.
//
// The configuration takes effect in the order of the send queue: requests posted
// behind it may use the key at once. If signaled, it completes with OpMKeyConfigure.
func (c *Chain) Configure(key *MKey) *Chain {
	return c.configure(key, -1, MKeyConfAttr{})
}

// ConfigureAttr is Configure in the manner of mlx5dv_wr_mkey_configure(3): exactly
// setters setters must follow.
func (c *Chain) ConfigureAttr(key *MKey, setters int, attr MKeyConfAttr) *Chain {
	if setters < 0 {
		return c.fail(syscall.EINVAL, "configure: %d setters", setters)
	}
	return c.configure(key, setters, attr)
}

func (c *Chain) configure(key *MKey, setters int, attr MKeyConfAttr) *Chain {
	explicit := c.explicit
	r := c.build(kindConfigure, OpMKeyConfigure, roce.OpLocal)
	c.next()
	switch {
	case explicit && r.flags&SendInline == 0:
		return c.fail(syscall.EOPNOTSUPP, "request %d: a configuration goes inline and needs the flag SendInline", r.id)
	case attr.CompMask != 0:
		return c.fail(syscall.EOPNOTSUPP, "request %d: comp_mask %#x: must be 0", r.id, attr.CompMask)
	case key.pd != c.qp.pd:
		return c.fail(syscall.EINVAL, "request %d: key %#x is of another protection domain", r.id, key.Number())
	}
	r.key = key
	space := 4 * 16
	if n := c.qp.attr.MaxInlineData; n > 0 {
		space = n + 4
	}
	c.own = confBuilder{req: r, want: setters, conf: mkey.Update{Flags: attr.Flags, Space: space}}
	c.conf = &c.own
	return c
}

// setter returns the open configuration if the setter may still be called.
func (c *Chain) setter(name string, isSet func(*mkey.Update) bool) *mkey.Update {
	switch {
	case c.err != nil:
		return nil
	case c.conf == nil:
		c.fail(syscall.EINVAL, "setter %s without the builder Configure", name)
		return nil
	case isSet(&c.conf.conf):
		c.fail(syscall.EINVAL, "request %d: setter %s twice", c.conf.req.id, name)
		return nil
	}
	c.conf.have++
	return &c.conf.conf
}

// Access sets what may be done to memory through the key
// (mlx5dv_wr_set_mkey_access_flags(3)).
func (c *Chain) Access(a Access) *Chain {
	if conf := c.setter("Access", func(c *mkey.Update) bool { return c.Access != nil }); conf != nil {
		c.own.access = a
		conf.Access = &c.own.access
	}
	return c
}

// List sets the layout to a list of regions and memory keys
// (mlx5dv_wr_set_mkey_layout_list(3)).
func (c *Chain) List(sges ...SGE) *Chain {
	conf := c.setter("List", func(c *mkey.Update) bool { return c.Layout != nil })
	if conf == nil {
		return c
	}
	l := make(mkey.List, len(sges))
	for i, s := range sges {
		l[i] = mkey.Segment{Memory: keyRef{c.qp.pd, s.LKey}, Addr: s.Addr, Length: uint64(s.Length)}
	}
	conf.Layout = l
	return c
}

// Interleaved sets the layout to a pattern that is repeated
// (mlx5dv_wr_set_mkey_layout_interleaved(3)).
func (c *Chain) Interleaved(repeat uint32, entries ...Strided) *Chain {
	conf := c.setter("Interleaved", func(c *mkey.Update) bool { return c.Layout != nil })
	if conf == nil {
		return c
	}
	l := mkey.Interleaved{Repeat: repeat, Entries: make([]mkey.Strided, len(entries))}
	for i, s := range entries {
		l.Entries[i] = mkey.Strided{Memory: keyRef{c.qp.pd, s.LKey}, Addr: s.Addr, Count: s.BytesCount, Skip: s.BytesSkip}
	}
	conf.Layout = l
	return c
}

// Signature sets the block signature attributes
// (mlx5dv_wr_set_mkey_sig_block(3)).
func (c *Chain) Signature(s Signature) *Chain {
	if conf := c.setter("Signature", func(c *mkey.Update) bool { return c.Signature != nil }); conf != nil {
		if bad := c.qp.pd.dev.crypto.tests.refuse(&s); bad != nil {
			return c.fail(syscall.EOPNOTSUPP, "%v", bad)
		}
		conf.Signature = &s
	}
	return c
}

// Crypto sets the crypto attributes (mlx5dv_wr_set_mkey_crypto(3)).
func (c *Chain) Crypto(a Crypto) *Chain {
	if conf := c.setter("Crypto", func(c *mkey.Update) bool { return c.Crypto != nil }); conf != nil {
		if c.qp.pd.dev.crypto.tests.xts {
			return c.fail(syscall.EOPNOTSUPP, "AES-XTS failed its known-answer test")
		}
		conf.Crypto = &a
	}
	return c
}

// endConfigure closes the configuration that is open: it checks it and keeps what
// the request will put in force.
func (c *Chain) endConfigure() {
	b := c.conf
	if b == nil {
		return
	}
	c.conf = nil
	if c.err != nil {
		return
	}
	if b.want >= 0 && b.have != b.want {
		c.fail(syscall.EINVAL, "request %d: %d setters were announced, %d followed", b.req.id, b.want, b.have)
		return
	}
	p, err := b.req.key.door.Prepare(&b.conf)
	if err != nil {
		c.err = err
		return
	}
	b.req.update = p
}
