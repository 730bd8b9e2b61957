package engine

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// Prepare checks a configuration as far as that does not depend on the state of any key,
// and keeps a copy of it in the request: afterwards the front may use the slices and
// pointers of the configuration again. A configuration that was not prepared is checked
// when it executes.
//
// Errors are those of mlx5dv_wr_mkey_configure(3) and its setters: EOPNOTSUPP for unknown
// flags and for algorithms that failed their known-answer test, ENOMEM for more entries
// than fit, EINVAL for the rest.
func (c *Configuration) Prepare() error {
	p, err := c.prepare()
	if err != nil {
		return err
	}
	c.prepared = p
	return nil
}

func (c *Configuration) prepare() (keydoor.Prepared, error) {
	if c.prepared != nil {
		return c.prepared, nil
	}
	k := c.Key
	if err := k.pd.dev.tests.refuse(c); err != nil {
		return nil, err
	}
	if c.Tag != nil && k.key.Flags()&mkey.UpdateTag == 0 {
		return nil, operr.New("mkey configure", syscall.EOPNOTSUPP, "key %#x was created without UpdateTag: its tag cannot be set", k.Number())
	}
	u := mkey.Update{Flags: c.Flags, Access: c.Access, Signature: c.Signature, Crypto: c.Crypto, Space: c.Space}
	switch {
	case c.HasList:
		u.Layout = k.pd.list(c.List)
	case c.HasInterleaved:
		u.Layout = k.pd.interleaved(c.Repeat, c.Interleaved)
	}
	return k.door.Prepare(&u)
}

func (pd *PD) list(sges []rdma.SGE) mkey.List {
	l := make(mkey.List, len(sges))
	for i, s := range sges {
		l[i] = mkey.Segment{Memory: keyRef{pd, s.LKey}, Addr: s.Addr, Length: uint64(s.Length)}
	}
	return l
}

func (pd *PD) interleaved(repeat uint32, entries []rdma.Strided) mkey.Interleaved {
	l := mkey.Interleaved{Repeat: repeat, Entries: make([]mkey.Entry, len(entries))}
	for i, s := range entries {
		l.Entries[i] = mkey.Entry{Memory: keyRef{pd, s.LKey}, Addr: s.Addr, Count: s.BytesCount, Skip: s.BytesSkip}
	}
	return l
}
