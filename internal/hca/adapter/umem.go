package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Umem is memory that a program has registered for the queues of its commands, which name
// it by its number and an offset.
type Umem struct {
	object
	users engine.Users
	at    Segments
}

// RegUmem registers length bytes of a process's memory from addr, which need not be aligned. access is
// of enum ibv_access_flags.
func (c *Context) RegUmem(mem Memory, addr, length uint64, access uint32) (_ *Umem, err error) {
	const op = "register a umem"
	defer notCreated(c, "umem", &err)
	if length == 0 {
		return nil, failure.New(op, syscall.EINVAL, "a umem of 0 bytes")
	}
	if err := reachable(op, mem, addr, length, access&pinsForWriting != 0); err != nil {
		return nil, err
	}
	return newUmem(c, op, 0, Segments{{mem, addr, length}})
}

func newUmem(c *Context, op string, uid uint16, at Segments) (*Umem, error) {
	u := &Umem{object: object{ctx: c, number: newNumber(c, &c.dev.next.umem, c.umems), uid: uid}, at: at}
	if err := enter(c, op, c.umems, u.number, u); err != nil {
		return nil, err
	}
	c.trace(TraceObject, "umem", u.number, "create", nil, value("addr", at[0].Addr), value("length", at.Len()))
	return u, nil
}

// Close frees the umem. EBUSY: a queue or a doorbell record lies in it.
func (u *Umem) Close() error {
	first, err := u.users.Close("free the umem", u.ctx.qpsOf)
	if !first {
		return u.ctx.refused("umem", u.number, "destroy", err)
	}
	leave(u.ctx, u.ctx.umems, u.number)
	u.ctx.trace(TraceObject, "umem", u.number, "destroy", nil)
	return nil
}

// umemPair is the umems of a queue and of its doorbell record; nil for those that lie
// elsewhere.
type umemPair [2]*Umem

func (p umemPair) users() (all []*engine.Users) {
	for _, u := range p {
		if u != nil {
			all = append(all, &u.users)
		}
	}
	return all
}

// createUmem executes CREATE_UMEM.
func createUmem(c *Context, x *prm.Call) error {
	u, ok := prm.ParseCreateUmem(x.In)
	size := uint64(len(u.Pages)) << u.Shift
	switch {
	case !ok:
		return refuse(prm.CmdBadInputLen, synShortInput, "the list of pages is longer than the command")
	case uint64(u.Offset) >= size:
		return refuse(prm.CmdBadParam, synValue, "an offset of %d bytes in pages of %d bytes", u.Offset, size)
	}
	m, err := newUmem(c, x.Command.String(), x.UID, Pages(c.mem, u.Shift, u.Pages).From(uint64(u.Offset)))
	return answer(x, m, err)
}

// keyOfUmem is the kind under which a umem counts the memory keys whose bytes are its own. An error of its
// deregistration names the kind.
const keyOfUmem = "memory key"

// closeRegion destroys a key that is a region.
func (k *guestKey) closeRegion() error {
	err := k.region.Close()
	if err == nil && k.umem != nil {
		k.umem.users.Leave(keyOfUmem)
	}
	return err
}

// createOnUmem executes a program's CREATE_MKEY in mode MTT. The key's first byte has the place in its page that
// its address has.
func createOnUmem(c *Context, x *prm.Call, pd *PD, m *prm.MKeyContext) error {
	u, err := find(c, x, "umem", c.umems, m.Umem)
	switch {
	case err != nil:
		return err
	case m.Free || m.Len == 0:
		return refuse(prm.CmdBadParam, synValue, "a key of umem %#x, free or without bytes", m.Umem)
	case len(u.at) != 1:
		return refuse(prm.CmdBadParam, synNotSupported, "umem %#x has %d pieces of memory: a key takes one", m.Umem, len(u.at))
	}
	// Programs that leave the size of a page out mean the smallest.
	page := uint64(1) << max(m.LogPage, 12)
	s := &u.at[0]
	begin, end := s.Addr&^(pinPage-1), (s.Addr+s.Len+pinPage-1)&^(pinPage-1)
	first := (s.Addr+m.UmemOffset)&^(page-1) + m.Start&(page-1)
	if m.UmemOffset > s.Len || first < begin || first > end || m.Len > end-first {
		return refuse(prm.CmdBadParam, synMemory, "%d bytes from %#x, at %#x of umem %#x: it has %d bytes from %#x", m.Len, m.Start, m.UmemOffset, m.Umem, s.Len, s.Addr)
	}
	if err := u.users.Enter(x.Command.String(), keyOfUmem); err != nil {
		return err
	}
	e, err := pd.eng.NewRegion(engine.RegionAttr{Memory: programMemory{s.Mem}, Start: first, Addr: m.Start, Length: m.Len, Access: accessOf(m.Access), Prefer: c.nextKey() | uint32(m.Tag)})
	if err != nil {
		u.users.Leave(keyOfUmem)
		return err
	}
	return enterKey(c, x, &mkeyObject{ctx: c, uid: x.UID, guest: &guestKey{region: e, umem: u}, mode: m.Mode})
}

// place returns the memory of a queue in a umem.
func place(c *Context, x *prm.Call, what string, number uint32, off uint64) (*Umem, Segments, error) {
	u, err := find(c, x, "umem", c.umems, number)
	if err != nil {
		return nil, nil, err
	}
	at := u.at.From(off)
	if at == nil {
		return nil, nil, refuse(prm.CmdBadParam, synMemory, "offset %#x of %s: umem %#x has %d bytes", off, what, number, u.at.Len())
	}
	return u, at, nil
}
