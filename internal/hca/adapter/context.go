package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

func notYet(op string) error { return operr.New(op, syscall.EOPNOTSUPP, "not supported") }

// Device is an adapter with one port.
type Device struct{ cfg Config }

// Open opens an adapter.
func Open(cfg Config) (*Device, error) { return &Device{cfg: cfg}, nil }

// Close closes the adapter; contexts that are open are closed first.
func (d *Device) Close() error { return nil }

// Attr returns the device's limits.
func (d *Device) Attr() Attr { return Attr{} }

// GIDs returns the GID table.
func (d *Device) GIDs() []GIDEntry { return nil }

// NewContext makes a context of a program with that memory.
func (d *Device) NewContext(mem Memory, ev Events) *Context { return &Context{dev: d} }

// Context is one user of a device.
type Context struct{ dev *Device }

// Close destroys every object of the context and waits until nothing touches its
// memory any more. Further calls do nothing.
func (c *Context) Close() {}

// Poll looks at what the doorbell registers hint at and reports whether there was
// work.
func (c *Context) Poll() (worked bool) { return false }

// Scan looks at every doorbell record and reports whether there was work.
func (c *Context) Scan() (worked bool) { return false }

// Busy reports whether doorbells may come.
func (c *Context) Busy() bool { return false }

// Clock returns the free-running counter that completions are stamped with.
func (c *Context) Clock() uint64 { return 0 }

// UAR is a page of doorbell registers that is shared with the program.
type UAR struct{}

// NewUAR makes a UAR of a shared page of 4096 bytes.
func (c *Context) NewUAR(page []byte, blueFlame bool) (*UAR, error) { return &UAR{}, nil }

// Close ends the use of the page. EBUSY: a queue uses it.
func (u *UAR) Close() error { return nil }

// PD is a protection domain.
type PD struct{}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) { return nil, notYet("allocate a PD") }

// Number returns the PD's number.
func (p *PD) Number() uint32 { return 0 }

// Close frees the PD. EBUSY: something uses it.
func (p *PD) Close() error { return nil }

// XRCD is an XRC domain.
type XRCD struct{}

// OpenXRCD makes an XRC domain.
func (c *Context) OpenXRCD() (*XRCD, error) { return nil, notYet("open an XRCD") }

// Number returns the domain's number.
func (x *XRCD) Number() uint32 { return 0 }

// Close frees the domain. EBUSY: something uses it.
func (x *XRCD) Close() error { return nil }

// MR is a memory region of the program's memory.
type MR struct{}

// RegMR registers length bytes of the program's memory from addr, which requests name
// by addresses from iova on. access is of enum ibv_access_flags.
func (c *Context) RegMR(pd *PD, addr, length, iova uint64, access uint32) (*MR, error) {
	return nil, notYet("register memory")
}

// LKey returns the key for requests of this side.
func (m *MR) LKey() uint32 { return 0 }

// RKey returns the key for requests of the peer.
func (m *MR) RKey() uint32 { return 0 }

// Length returns the region's length in bytes.
func (m *MR) Length() uint64 { return 0 }

// IOVA returns the first address of the region in requests.
func (m *MR) IOVA() uint64 { return 0 }

// PD returns the region's protection domain.
func (m *MR) PD() *PD { return nil }

// Rereg changes what flags (enum ibv_rereg_mr_flags) name. The keys stay.
func (m *MR) Rereg(flags uint32, pd *PD, addr, length, iova uint64, access uint32) error {
	return notYet("re-register memory")
}

// Close takes the region away. When it has returned, nothing reaches the memory
// through it.
func (m *MR) Close() error { return nil }

// MW is a memory window.
type MW struct{}

// AllocMW makes a memory window of type 1 or 2.
func (c *Context) AllocMW(pd *PD, typ int) (*MW, error) {
	return nil, notYet("allocate a memory window")
}

// RKey returns the window's key.
func (w *MW) RKey() uint32 { return 0 }

// Close frees the window.
func (w *MW) Close() error { return nil }

// CQ is a completion queue in the program's memory.
type CQ struct{}

// CreateCQ makes a CQ. It writes a value that is not 0 to the arm record, so that the
// first arm is seen.
func (c *Context) CreateCQ(a CQAttr) (*CQ, error) { return nil, notYet("create a CQ") }

// Number returns the CQ's number.
func (q *CQ) Number() uint32 { return 0 }

// Resize moves the CQ to another ring.
func (q *CQ) Resize(buf uint64, entries, cqeSize int) error { return notYet("resize the CQ") }

// Moderate lets the CQ raise an event only after count completions or period
// microseconds.
func (q *CQ) Moderate(count, period uint16) error { return notYet("moderate the CQ") }

// Close destroys the CQ. EBUSY: a QP or SRQ uses it.
func (q *CQ) Close() error { return nil }

// QP is a queue pair whose queues stand in the program's memory.
type QP struct{}

// CreateQP makes a QP in RESET.
func (c *Context) CreateQP(a QPAttr) (*QP, error) { return nil, notYet("create a QP") }

// OpenQP opens an XRC receive QP by its number.
func (c *Context) OpenQP(qpn uint32, typ QPType, x *XRCD) (*QP, error) {
	return nil, notYet("open a QP")
}

// Number returns the QP's number.
func (q *QP) Number() uint32 { return 0 }

// Type returns the QP's type.
func (q *QP) Type() QPType { return RC }

// Modify changes the QP's state and attributes as ibv_modify_qp does.
func (q *QP) Modify(a *QPModify, mask AttrMask) error { return notYet("modify the QP") }

// Query returns the QP's attributes, state and sizes.
func (q *QP) Query() (QPModify, QPCap) { return QPModify{}, QPCap{} }

// AttachMcast joins the QP to a multicast group.
func (q *QP) AttachMcast(gid [16]byte) error { return notYet("attach to a multicast group") }

// DetachMcast ends what AttachMcast began.
func (q *QP) DetachMcast(gid [16]byte) error { return notYet("detach from a multicast group") }

// Close destroys the QP.
func (q *QP) Close() error { return nil }

// SRQ is a shared receive queue in the program's memory.
type SRQ struct{}

// CreateSRQ makes a shared receive queue.
func (c *Context) CreateSRQ(a SRQAttr) (*SRQ, error) { return nil, notYet("create an SRQ") }

// Number returns the SRQ's number.
func (s *SRQ) Number() uint32 { return 0 }

// Modify sets the limit or the size (enum ibv_srq_attr_mask).
func (s *SRQ) Modify(maxWR, limit uint32, mask uint32) error { return notYet("modify the SRQ") }

// Query returns the SRQ's sizes and its limit, which is 0 once its event was raised.
func (s *SRQ) Query() (maxWR, maxSGE, limit uint32) { return 0, 0, 0 }

// Close destroys the SRQ. EBUSY: a QP uses it.
func (s *SRQ) Close() error { return nil }

// AH is the address of datagrams.
type AH struct{}

// CreateAH makes an address.
func (c *Context) CreateAH(pd *PD, a AHAttr) (*AH, error) { return nil, notYet("create an address") }

// DMAC returns the MAC address that the driver puts into datagrams' requests.
func (a *AH) DMAC() [6]byte { return [6]byte{} }

// Close frees the address.
func (a *AH) Close() error { return nil }

// DEVXObject is an object that a command made.
type DEVXObject struct{}

// ExecDEVX executes a command that makes no object, such as QUERY_HCA_CAP. An error is
// a command that was refused as a whole; a command that failed answers with its status
// and syndrome in out and errno EREMOTEIO.
func (c *Context) ExecDEVX(in []byte, outLen int) (out []byte, err error) {
	return nil, notYet("command")
}

// CreateDEVX executes a command that makes an object.
func (c *Context) CreateDEVX(in []byte, outLen int) (*DEVXObject, []byte, error) {
	return nil, nil, notYet("command")
}

// Exec executes a command that asks or changes the object.
func (o *DEVXObject) Exec(in []byte, outLen int) ([]byte, error) { return nil, notYet("command") }

// Close destroys the object.
func (o *DEVXObject) Close() error { return nil }

// ExecOn executes a command on an object of the verbs: a *QP, *CQ, *SRQ or *MR.
func (c *Context) ExecOn(obj any, in []byte, outLen int) ([]byte, error) {
	return nil, notYet("command")
}
