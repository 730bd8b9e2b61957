package engine

import (
	"cmp"
	"math"
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
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
	if err := k.pd().dev.tests.refuse(c); err != nil {
		return nil, err
	}
	if c.Tag != nil && k.key.Flags()&mkey.UpdateTag == 0 {
		return nil, failure.New("mkey configure", syscall.EOPNOTSUPP, "key %#x was created without UpdateTag: its tag cannot be set", k.Number())
	}
	if c.hasLayout() {
		if err := c.checkLength(c.length()); err != nil {
			return nil, err
		}
	}
	u := update{ResetSignature: c.ResetSignature, Access: c.Access, Start: c.Start, Signature: c.Signature, Transaction: c.Transaction, Crypto: c.Crypto, Space: c.Space}
	pd := cmp.Or(c.PD, k.pd())
	switch {
	case c.Memory != nil:
		u.Layout = c.Memory
	case c.HasList:
		u.Layout = pd.list(c.List)
	case c.HasInterleaved:
		u.Layout = pd.interleaved(c.Repeat, c.Interleaved)
	}
	return k.door.Prepare(&u)
}

func (c *Configuration) hasLayout() bool { return c.Memory != nil || c.HasList || c.HasInterleaved }

// length returns the length of the configuration's layout in bytes, capped at the largest
// number if it does not fit 64 bits.
func (c *Configuration) length() (n uint64) {
	if c.Memory != nil {
		for i := range c.Memory {
			n += c.Memory[i].Length
		}
		return n
	}
	if c.HasList {
		for i := range c.List {
			n += uint64(c.List[i].Length)
		}
		return n
	}
	for i := range c.Interleaved {
		n += uint64(c.Interleaved[i].BytesCount)
	}
	hi, n := bits.Mul64(n, uint64(c.Repeat))
	if hi != 0 {
		return math.MaxUint64
	}
	return n
}

// checkLength refuses to set signature or crypto attributes over a layout of n bytes that is
// longer than 4 GiB: the attributes of an adapter have 32 bits for its length.
func (c *Configuration) checkLength(n uint64) error {
	if n > math.MaxUint32 && (c.Signature != nil || c.Crypto != nil) {
		return failure.New("mkey configure", syscall.EINVAL, "signature or crypto attributes over a layout of %d bytes: at most %d", n, uint32(math.MaxUint32))
	}
	return nil
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
