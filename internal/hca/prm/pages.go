package prm

// PageList describes the memory of a kernel driver's queue: a list of pages at the end of the
// command.
type PageList struct {
	Shift  uint   // log2 of a page's size
	Offset uint64 // of the queue in the first page
	At     int    // of the list in the command, in bytes
	Size   uint64 // of the queue
}

// ListAt is the offset of the page list in CREATE_CQ, CREATE_QP and others, in bytes.
const ListAt = 0x110

// QueuePages makes a PageList of the fields log_page_size and page_offset. An offset counts
// in 64ths of a page.
func QueuePages(logPage, offset, size uint64) PageList {
	shift := uint(logPage) + adapterShift
	return PageList{Shift: shift, Offset: offset << (shift - 6), At: ListAt, Size: size}
}

// Pages returns the addresses of the pages, as many as the queue has. ok is false if the command is too short
// for them.
func (p *PageList) Pages(in []byte) (pages []uint64, ok bool) {
	if p.Shift >= 40 {
		return nil, false
	}
	return Addresses(in, p.At, p.Count())
}

// Count returns the number of pages.
func (p *PageList) Count() uint64 { return (p.Offset + p.Size + 1<<p.Shift - 1) >> p.Shift }

// Addresses returns n addresses of pages, which stand in a command from a byte on. The low bits of an entry are
// flags. ok is false if the command is too short for them.
func Addresses(in []byte, at int, n uint64) (pages []uint64, ok bool) {
	if len(in) < at || n > uint64(len(in)-at)/8 {
		return nil, false
	}
	pages = make([]uint64, n)
	for i := range pages {
		pages[i] = be.Uint64(in[at+8*i:]) &^ pageFlags
	}
	return pages, true
}
