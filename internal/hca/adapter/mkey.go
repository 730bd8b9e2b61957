package adapter

import (
	"sync"

	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
)

// mkeyObject is the adapter's part of a memory key: which signature errors it reports, and in which format.
// Programs make hundreds of thousands of keys, so it is small.
//
// See keyReports for when it reports one.
type mkeyObject struct {
	ctx       *Context
	eng       *engine.MKey // nil: the key is the region in guest
	guest     *guestKey    // of a guest's key, and of a program's key of a umem; nil: a program's key with a list
	octowords uint32       // room of the list, in units of 16 bytes
	uid       uint16
	mode      uint8 // prm.AccessMode*
	logPage   uint8 // log_page_size of the last layout; mu guards it

	mu sync.Mutex
	// mu guards the following fields.
	start   uint64 // address of the key's first byte
	reports keyReports
}

// guestKey is the additional state of a guest's key, and of a program's key of a umem. A key for physical addresses
// or of a umem is a region of the engine. A key whose list comes in parts keeps the parts until the last one has come.
type guestKey struct {
	region *engine.Region // mode PA or MEMIC, or the memory of umem; nil: none
	umem   *Umem          // nil: none

	// mkeyObject.mu guards the following fields.
	charged int64  // its part of Context.listBytes
	part    []byte // of the list that is not in force yet
	closed  bool
}

func (o *mkeyObject) owner() uint16 { return o.uid }

// number returns the number under which requests name the key.
func (o *mkeyObject) number() uint32 {
	if o.eng == nil {
		return o.guest.region.Number()
	}
	return o.eng.Number()
}

// isList reports whether a key of the access mode is a list of pieces of other keys.
func isList(mode uint8) bool { return mode == prm.AccessModeKLM || mode == prm.AccessModeKSM }

// createMKey executes CREATE_MKEY. The kernel of a guest may make keys of all modes. Programs, on the host or in
// a guest, may make lists of other keys, and keys for the memory of a umem.
func createMKey(c *Context, x *prm.Call) error {
	m := prm.ParseCreateMKey(x.In)
	ofProgram := !c.guest || x.UID != 0
	pd, err := c.pd(x, m.PD)
	switch {
	case err != nil:
		return err
	case ofProgram && m.Mode == prm.AccessModeMTT:
		return createOnUmem(c, x, pd, &m)
	case m.ListUmem:
		return refuse(prm.CmdBadParam, synNotSupported, "a list in a umem is not supported")
	case ofProgram && !isList(m.Mode):
		return refuse(prm.CmdBadParam, synNotSupported, "access mode %d: memory of a umem, MTT (%d), and lists of keys are supported, KLM (%d) and KSM (%d)", m.Mode, prm.AccessModeMTT, prm.AccessModeKLM, prm.AccessModeKSM)
	case m.Mode == prm.AccessModePA || m.Mode == prm.AccessModeMEMIC:
		return createRegion(c, x, pd, &m)
	case m.Mode > prm.AccessModeKSM:
		return refuse(prm.CmdBadParam, synNotSupported, "access mode %d: PA (0), MTT (1), KLM (2), KSM (3) and MEMIC (5) are supported", m.Mode)
	case !m.UMR && (m.Free || !c.guest && m.Len == 0):
		return refuse(prm.CmdBadParam, synValue, "umr_en 0 and no memory: nothing could give the key any")
	}
	a := keydoor.Attr{Flags: uint32(mkey.UpdateTag), MaxEntries: int(min(m.Octowords, 1<<30)), Number: c.nextKey() | uint32(m.Tag), Access: accessOf(m.Access)}
	if c.guest {
		a.MaxEntries = min(a.MaxEntries, engine.MaxMKeyEntries)
	}
	// The command of a guest does not say whether the peer may invalidate the key: its UMRs do.
	if m.RemoteInvalidate || c.guest {
		a.Flags |= uint32(mkey.RemoteInvalidate)
	}
	if m.Crypto {
		a.Flags |= uint32(mkey.CryptoOffload)
	}
	// BSFOctowords is room for one set of attributes or for two. The first set is that of crypto if the key
	// has crypto; the signature's is the second one then, and the first one otherwise.
	if m.BSF && (!m.Crypto || m.BSFOctowords >= 2*prm.BSFSize/16) {
		a.Flags |= uint32(mkey.BlockSignature)
	}
	e, err := pd.eng.NewMKey(a)
	if err != nil {
		return err
	}
	o := &mkeyObject{ctx: c, eng: e, uid: x.UID, mode: m.Mode, octowords: m.Octowords, logPage: m.LogPage, start: m.Start}
	e.SetLength(m.Len)
	if c.guest {
		o.guest = &guestKey{}
		if isList(m.Mode) {
			o.octowords = uint32(a.MaxEntries) // UMRs with a longer list are refused before it is copied
		}
	}
	// A key that is not free gets its layout by this command. An exception is a program's key of length 0, which
	// gets its layout by a UMR.
	if !m.Free && (c.guest || m.Len > 0) {
		if err := o.configureKey(x, &m); err != nil {
			o.closeEngine()
			return err
		}
	}
	return enterKey(c, x, o)
}

// enterKey makes a key known to commands, and answers its index.
func enterKey(c *Context, x *prm.Call, o *mkeyObject) error {
	number := o.number()
	if err := enter(c, x.Command.String(), c.mkeys, number>>8, o); err != nil {
		o.closeEngine()
		return err
	}
	prm.PutNumber(x.Out, number>>8)
	c.trace(TraceObject, "mkey", number, "create", nil)
	return nil
}

// closeEngine destroys the engine's key or region, and gives back the memory that its list took of the context's.
func (o *mkeyObject) closeEngine() error {
	var err error
	if o.eng == nil {
		err = o.guest.closeRegion()
	} else {
		err = o.eng.Close()
	}
	if err == nil {
		o.discharge()
	}
	return err
}

// Close destroys the memory key.
func (o *mkeyObject) Close() error {
	number := o.number()
	if err := o.closeEngine(); err != nil {
		return err
	}
	c := o.ctx
	leave(c, c.mkeys, number>>8)
	c.closeOrphans()
	c.trace(TraceObject, "mkey", number, "destroy", nil)
	return nil
}
