package adapter

import (
	"sync"

	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/mkey"
)

// mkeyObject is the adapter's part of a memory key: which errors it reports.
type mkeyObject struct {
	ctx *Context
	eng *engine.MKey
	uid uint16

	mu           sync.Mutex // guards the following fields
	expected     bool       // count of errors, modulo 2, that is reported next
	reported     bool       // count of errors reported, modulo 2
	memory, wire reportFormat
}

// reportFormat is what a report of a bad block depends on.
type reportFormat struct {
	typ    prm.SigType
	stride uint16 // bytes of a block and its field
}

// expect takes the expected count of a configuration.
func (o *mkeyObject) expect(count bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expected = count
}

// configured records the signature attributes, which determine the format of a report.
func (o *mkeyObject) configured(s *prm.SignatureBSF) {
	of := func(d *prm.SigDomain) reportFormat {
		field := 4
		if d.Type.IsT10() || d.Type == prm.SigCRC64 {
			field = 8
		}
		return reportFormat{d.Type, uint16(d.BlockSize + field)}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.memory, o.wire = of(&s.Memory), of(&s.Wire)
}

func (o *mkeyObject) format(d mkey.Domain) reportFormat {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d == mkey.MemoryDomain {
		return o.memory
	}
	return o.wire
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

// createMKey executes CREATE_MKEY.
func (c *Context) createMKey(x *call) error {
	m := prm.ParseCreateMKey(x.in)
	pd, err := c.pd(x, m.PD)
	switch {
	case err != nil:
		return err
	case m.Mode != prm.AccessModeKLM:
		return refuse(prm.CmdBadParam, synNotSupported, "access mode %d: only lists of keys (%d) are supported", m.Mode, prm.AccessModeKLM)
	case !m.UMR:
		return refuse(prm.CmdBadParam, synNotSupported, "umr_en 0: only keys that requests configure are supported")
	}
	a := mkey.Attr{Flags: mkey.Indirect | mkey.UpdateTag, MaxEntries: int(min(m.Octowords, 1<<30)), Number: uint32(m.Tag), Access: accessOf(m.Access)}
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
		return err
	}
	o := &mkeyObject{ctx: c, eng: e, uid: x.uid}
	index := e.Number() >> 8
	if err := enter(c, x.cmd.String(), c.mkeys, index, o); err != nil {
		e.Close()
		return err
	}
	prm.PutNumber(x.out, index)
	if c.tracing() {
		c.trace(TraceObject, "mkey", e.Number(), "create", nil)
	}
	return nil
}

// Close destroys the memory key.
func (o *mkeyObject) Close() error {
	if err := o.eng.Close(); err != nil {
		return err
	}
	c := o.ctx
	leave(c, c.mkeys, o.eng.Number()>>8)
	c.closeOrphans()
	if c.tracing() {
		c.trace(TraceObject, "mkey", o.eng.Number(), "destroy", nil)
	}
	return nil
}
