package adapter

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// mkeyObject is the adapter's part of a memory key: which errors it reports.
type mkeyObject struct {
	eng *engine.MKey

	mu       sync.Mutex // guards the following fields
	expected bool       // count of errors, modulo 2, that is reported next
	reported bool       // count of errors reported, modulo 2
	signed   prm.SignatureBSF
}

// expect takes the expected count of a configuration.
func (o *mkeyObject) expect(count bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expected = count
}

// configured records the signature attributes, which determine the format of a report.
func (o *mkeyObject) configured(s prm.SignatureBSF) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.signed = s
}

func (o *mkeyObject) format(d mkey.Domain) prm.SigType {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d == mkey.MemoryDomain {
		return o.signed.Memory.Type
	}
	return o.signed.Wire.Type
}

// found counts an error and returns whether it is reported. Only one is, until the driver
// expects the next.
func (o *mkeyObject) found() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.expected == o.reported {
		return false
	}
	o.reported = o.expected
	return true
}

// mkey returns the memory key with an index, or nil.
func (d *Device) mkey(index uint32) *mkeyObject {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mkeys[index]
}

// createMKey executes CREATE_MKEY.
func (c *Context) createMKey(in []byte) (*DEVXObject, error) {
	const op = "CREATE_MKEY"
	m := prm.ParseCreateMKey(in)
	pd := c.pd(m.PD)
	switch {
	case pd == nil:
		return nil, operr.New(op, syscall.EINVAL, "PD %#x does not exist", m.PD)
	case m.Mode != prm.AccessModeKLM:
		return nil, operr.New(op, syscall.EOPNOTSUPP, "access mode %d: only lists of keys (%d) are supported", m.Mode, prm.AccessModeKLM)
	case !m.Free || !m.UMR:
		return nil, operr.New(op, syscall.EOPNOTSUPP, "a key that is not free: only keys that requests configure are supported")
	case m.Tag != 0:
		return nil, operr.New(op, syscall.EOPNOTSUPP, "tag %#x: a new key has tag 0", m.Tag)
	}
	a := mkey.Attr{Flags: mkey.Indirect | mkey.UpdateTag, MaxEntries: int(min(m.Octowords, 1<<30))}
	if m.RemoteInvalidate {
		a.Flags |= mkey.RemoteInvalidate
	}
	if m.Crypto {
		a.Flags |= mkey.CryptoOffload
	}
	// A key with room for one set of attributes has those of crypto if it has crypto, and
	// with room for two it has both.
	if m.BSF && (!m.Crypto || m.BSFOctowords >= 2*prm.BSFSize/16) {
		a.Flags |= mkey.BlockSignature
	}
	e, err := pd.eng.NewMKey(a)
	if err != nil {
		return nil, err
	}
	o := &DEVXObject{ctx: c, kind: "mkey", number: e.Number(), mkey: e}
	c.dev.mu.Lock()
	c.dev.mkeys[e.Number()>>8] = &mkeyObject{eng: e}
	c.dev.mu.Unlock()
	return o, nil
}

// dek returns the data encryption key with a number, if keys of the domain may use it.
func (c *Context) dek(number uint32, pd *PD) (*dek.DEK, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.objects {
		if o.dek != nil && o.number == number {
			if err := o.dek.UsableBy(c.deks, pd.eng); err != nil {
				return nil, err
			}
			return o.dek, nil
		}
	}
	return nil, operr.New("configure a memory key", syscall.EINVAL, "DEK %#x does not exist", number)
}

// hasPSV reports whether a PSV exists.
func (c *Context) hasPSV(index uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.psvs[index]
	return ok
}
