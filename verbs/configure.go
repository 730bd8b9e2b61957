package verbs

import (
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// Configure begins a request that configures a memory key. The setters Access, List,
// Interleaved, Signature, ResetSignature and Crypto follow, each at most once.
//
// The request has only the attributes that its setters name. It takes effect when it
// executes, in the order of the send queue: the attributes are merged with the key's
// configuration at that time, and later requests may use the key. A request that does not
// execute, because it was aborted, cancelled, flushed or dropped, has no effect. Complete
// returns the errors that do not depend on the state of the key. Other errors fail the
// request with StatusMWBindErr. If signaled, the request completes with OpMKeyConfigure.
func (c Chain) Configure(key *MKey) Chain {
	b := c.open()
	if b == nil {
		return c
	}
	r := c.build(ibv.WRConfigure)
	switch {
	case key == nil:
		b.fail(syscall.EINVAL, "request %d: a configuration of no memory key", r.ID)
		return c
	case key.pd != b.qp.pd:
		b.fail(syscall.EINVAL, "request %d: key %#x is of another protection domain", r.ID, key.LKey())
		return c
	}
	r.Configure = &engine.Configuration{Key: key.e, Space: b.qp.attr.MaxInlineData + 4}
	if key.e.Flags()&mkey.UpdateTag != 0 {
		tag := uint8(key.LKey())
		r.Configure.Tag = &tag
	}
	b.conf = r
	return c
}

// setter returns the open configuration if the setter may be called now.
func (c Chain) setter(name string, isSet func(*engine.Configuration) bool) (*builder, *engine.Configuration) {
	b := c.open()
	switch {
	case b == nil || b.err != nil:
		return b, nil
	case b.conf == nil:
		b.fail(syscall.EINVAL, "setter %s without the builder Configure", name)
		return b, nil
	case isSet(b.conf.Configure):
		b.fail(syscall.EINVAL, "request %d: setter %s twice", b.conf.ID, name)
		return b, nil
	}
	return b, b.conf.Configure
}

// ResetSignature drops the signature attributes that the key has, if the request has no
// Signature, which replaces them (MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR).
func (c Chain) ResetSignature() Chain {
	if _, conf := c.setter("ResetSignature", func(c *engine.Configuration) bool { return c.ResetSignature }); conf != nil {
		conf.ResetSignature = true
	}
	return c
}

// Access sets the rights to memory that the key grants
// (mlx5dv_wr_set_mkey_access_flags(3)).
func (c Chain) Access(a rdma.Access) Chain {
	if _, conf := c.setter("Access", func(c *engine.Configuration) bool { return c.Access != nil }); conf != nil {
		conf.Access = &a
	}
	return c
}

func hasLayout(c *engine.Configuration) bool { return c.HasList || c.HasInterleaved }

// List sets the layout to a list of regions and memory keys
// (mlx5dv_wr_set_mkey_layout_list(3)).
func (c Chain) List(sges ...rdma.SGE) Chain {
	if _, conf := c.setter("List", hasLayout); conf != nil {
		conf.HasList, conf.List = true, slices.Clone(sges)
	}
	return c
}

// Interleaved sets the layout to a pattern that is repeated
// (mlx5dv_wr_set_mkey_layout_interleaved(3)).
func (c Chain) Interleaved(repeat uint32, entries ...rdma.Strided) Chain {
	if _, conf := c.setter("Interleaved", hasLayout); conf != nil {
		conf.HasInterleaved, conf.Repeat, conf.Interleaved = true, repeat, slices.Clone(entries)
	}
	return c
}

// Signature sets the block signature attributes
// (mlx5dv_wr_set_mkey_sig_block(3)). The key's layout must then have less than
// 4 GiB, as with libmlx5. If the layout is longer, Complete returns EINVAL if
// the same request sets the layout; otherwise the request fails.
func (c Chain) Signature(s mkey.Signature) Chain {
	if _, conf := c.setter("Signature", func(c *engine.Configuration) bool { return c.Signature != nil }); conf != nil {
		conf.Signature = &s
	}
	return c
}

// Crypto sets the crypto attributes (mlx5dv_wr_set_mkey_crypto(3)), with the limit of
// Signature for the layout. Complete returns EINVAL for a DEK of another device or protection domain, and for a plaintext DEK on a
// device in wrapped mode.
func (c Chain) Crypto(a mkey.Crypto) Chain {
	b, conf := c.setter("Crypto", func(c *engine.Configuration) bool { return c.Crypto != nil })
	if conf == nil {
		return c
	}
	if d, ok := a.DEK.(*dek.DEK); ok {
		if err := d.UsableBy(b.qp.pd.dev.crypto, b.qp.pd); err != nil {
			b.err = err
			return c
		}
	}
	conf.Crypto = &a
	return c
}

// endConfigure checks and closes the open configuration.
func (b *builder) endConfigure() {
	if b.conf != nil && b.err == nil {
		b.err = b.conf.Configure.Prepare()
	}
	b.conf = nil
}
