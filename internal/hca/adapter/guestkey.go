package adapter

import (
	"math"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// The memory keys of a guest's kernel driver: of physical addresses, and with lists that
// stand in the guest's memory.

// mostListBytes is the memory that the lists of a guest's keys may take: 8 million pages. An
// adapter has such lists in memory that the guest gives it.
const mostListBytes = 64 << 20

// bytesPerEntry is about the memory that an entry of a layout takes in a key.
const bytesPerEntry = 192

// createRegion makes a key for physical addresses, or for device memory.
func createRegion(c *Context, x *prm.Call, pd *PD, m *prm.MKeyContext) error {
	a := engine.RegionAttr{Memory: programMemoryOf(c.mem), Start: m.Start, Addr: m.Start, Length: m.Len, Access: accessOf(m.Access), Prefer: c.nextKey() | uint32(m.Tag)}
	switch {
	case m.Mode == prm.AccessModeMEMIC:
		a.Memory, a.Addr = programMemoryOf(c.memic), 0 // requests name it by addresses from 0 on
	case m.Length64:
		a.Start, a.Addr, a.Length = 0, 0, math.MaxUint64
	}
	e, err := pd.eng.NewRegion(a)
	if err != nil {
		return err
	}
	return enterKey(c, x, &mkeyObject{ctx: c, uid: x.UID, guest: &guestKey{region: e}})
}

// nextKey returns the number that the next key of a guest gets if no other context has it, with tag 0.
// The first ones of a driver are the same in every boot.
func (c *Context) nextKey() uint32 {
	if !c.guest {
		return 0
	}
	return newNumber(c, &c.keyNumbers, c.mkeys) << 8
}

// Physical reports whether a key is for all physical addresses.
func (c *Context) Physical(lkey uint32) bool {
	r := c.dev.eng.Region(lkey)
	return r != nil && r.Attr().Length == math.MaxUint64
}

// configureKey gives a new key the layout that its command has.
func (o *mkeyObject) configureKey(x *prm.Call, m *prm.MKeyContext) error {
	list, ok := m.List(x.In)
	if !ok {
		return refuse(prm.CmdBadInputLen, synShortInput, "a list of %d octowords does not fit in %d bytes", m.ListOctowords, len(x.In))
	}
	u := prm.UMR{Start: m.Start, Len: m.Len, HasLayout: true}
	if err := u.ParseLayout(o.mode, m.LogPage, list); err != nil {
		return err
	}
	if err := o.charge(listBytes(&u)); err != nil {
		return err
	}
	access := accessOf(m.Access)
	s := confSlot{conf: engine.Configuration{Key: o.eng, Access: &access, Start: &m.Start}}
	s.layout(&u, o, m.LogPage)
	return o.eng.Configure(&s.conf)
}

// listBytes returns the memory that a layout takes in a key.
func listBytes(u *prm.UMR) int64 {
	return int64(8*len(u.Pages) + bytesPerEntry*(len(u.Entries)+len(u.Strides)))
}

// charge counts n bytes for the list of a guest's key, or refuses them if the lists of all keys
// would take too much memory. The count never falls before the key is destroyed: if a configuration
// fails after its list was counted, the key keeps its previous list, which may be longer.
func (o *mkeyObject) charge(n int64) error {
	if o.guest == nil {
		return nil
	}
	const op = "configure a memory key"
	o.mu.Lock()
	defer o.mu.Unlock()
	more := n - o.guest.charged
	switch total := &o.ctx.listBytes; {
	case o.guest.closed:
		return failure.New(op, syscall.EINVAL, "the key was destroyed")
	case more <= 0:
		return nil
	case total.Add(more) > mostListBytes:
		total.Add(-more)
		return failure.New(op, syscall.ENOMEM, "the lists of all keys would take more than %d bytes", mostListBytes)
	}
	o.guest.charged = n
	return nil
}

// discharge ends the count when the key was destroyed.
func (o *mkeyObject) discharge() {
	if o.guest == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx.listBytes.Add(-o.guest.charged)
	o.guest.charged, o.guest.part, o.guest.closed = 0, nil, true
}

// fetchList returns the list of a UMR: from the request, or from the memory that it names.
func (q *QP) fetchList(u *prm.UMR) ([]byte, error) {
	if len(u.ListIn) == 0 {
		return u.List, nil
	}
	n := 0
	sges, vecs := make([]rdma.SGE, 0, len(u.ListIn)), make([]keydoor.Vec, len(u.ListIn))
	for _, d := range u.ListIn {
		n += int(d.Length)
	}
	list := make([]byte, n)
	for i, rest := 0, list; i < len(u.ListIn); i++ {
		vecs[i].Buf, rest = rest[:u.ListIn[i].Length], rest[u.ListIn[i].Length:]
	}
	if !q.eng.Gather(appendSGEs(sges, u.ListIn), vecs) {
		d := u.ListIn[0]
		return nil, failure.New("configure a memory key", syscall.EFAULT, "its list of %d bytes from %#x of key %#x cannot be read", n, d.Addr, d.LKey)
	}
	return list, nil
}

const listBlock = 4 // octowords

// translateList decodes the layout of a UMR, if it has one. A list may come in parts, of
// which only the last one makes the key usable: the parts before wait in slot.conf.part and
// then in the key.
func (q *QP) translateList(s *confSlot, u *prm.UMR) error {
	const op = "configure a memory key"
	o := s.object
	if u.Mask&prm.MaskPageSize == 0 {
		u.LogPage = o.logPage
	}
	if u.Mask&prm.MaskStart == 0 {
		u.Start = o.start
	}
	if u.Octowords == 0 && !u.HasLayout {
		return nil
	}
	if !u.HasLayout && o.guest == nil {
		u.HasLayout, u.Len = true, o.eng.Length() // another list of the same length
	}
	// A program's list is checked by the part of it that is used. Drivers pad a guest's list to
	// whole blocks of 64 bytes.
	if o.ctx.guest && u.ListAt+uint64(u.Octowords) > (uint64(o.octowords)+listBlock-1)&^(listBlock-1) {
		return failure.New(op, syscall.ENOMEM, "%d octowords at %d of the list: the key has %d", u.Octowords, u.ListAt, o.octowords)
	}
	list, err := q.fetchList(u)
	if err != nil {
		return err
	}
	if whole := u.HasLayout && u.ListAt == 0; !whole {
		if list, err = o.join(u, list); err != nil {
			return err
		}
	}
	if !u.HasLayout {
		s.part = list
		return nil
	}
	if err := u.ParseLayout(o.mode, u.LogPage, list); err != nil {
		return err
	}
	if err := o.charge(listBytes(u)); err != nil {
		return err
	}
	s.layout(u, o, u.LogPage)
	return nil
}

// join returns the key's list with a part replaced.
func (o *mkeyObject) join(u *prm.UMR, part []byte) ([]byte, error) {
	if o.guest == nil {
		return nil, failure.New("configure a memory key", syscall.EINVAL, "a list in parts: only drivers of a guest's kernel have them")
	}
	at := u.ListAt * prm.DataSegSize // up to 2^36
	o.mu.Lock()
	old := o.guest.part // it does not change: a new part makes a new list
	o.mu.Unlock()
	n := max(at+uint64(len(part)), uint64(len(old)))
	if err := o.charge(int64(n)); err != nil {
		return nil, err
	}
	list := make([]byte, n)
	copy(list, old)
	copy(list[at:], part)
	return list, nil
}

// layoutBegan applies a UMR's changes to the adapter's part of the key, when the UMR begins.
func (o *mkeyObject) layoutBegan(s *confSlot, u *prm.UMR) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logPage, o.start = u.LogPage, u.Start
	switch {
	case o.guest == nil || o.guest.closed:
	case s.part != nil:
		o.guest.part = s.part
	case u.HasLayout:
		o.guest.part = nil
	}
}
