package prm

// PageList describes the memory of a kernel driver's queue: a list of pages at the end of the
// command.
type PageList struct {
	Shift  uint   // log2 of a page's size
	Offset uint64 // of the queue in the first page
	At     int    // of the list in the command, in bytes
	Size   uint64 // of the queue
}

// listAt is the offset of the page list in CREATE_CQ, CREATE_QP and others, in bytes.
const listAt = 0x110

// queuePages makes a PageList of the fields log_page_size and page_offset. An offset counts
// in 64ths of a page.
func queuePages(logPage, offset, size uint64) PageList {
	shift := uint(logPage) + adapterShift
	return PageList{Shift: shift, Offset: offset << (shift - 6), At: listAt, Size: size}
}

// Pages returns the addresses of the pages, as many as the queue has. The low bits of an
// entry are flags. ok is false if the command is too short for them.
func (p *PageList) Pages(in []byte) (pages []uint64, ok bool) {
	if p.Shift >= 40 {
		return nil, false
	}
	n := (p.Offset + p.Size + 1<<p.Shift - 1) >> p.Shift
	if len(in) < p.At || n > uint64(len(in)-p.At)/8 {
		return nil, false
	}
	for i := range int(n) {
		pages = append(pages, be.Uint64(in[p.At+8*i:])&^pageFlags)
	}
	return pages, true
}
