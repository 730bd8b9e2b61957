package image

// seen is a set of block numbers. It holds a bit for each block of the pages that have one.
type seen struct {
	pages map[uint64]*[seenPage / 64]uint64
}

const (
	// seenPage is the number of blocks of a page.
	seenPage = 1 << 12
	// seenPages bounds the pages. An image with more is damaged everywhere: the set then forgets all
	// blocks, and they are reported again.
	seenPages = 1 << 14
)

// add adds a block. It reports whether the block was not in the set.
func (s *seen) add(block uint64) bool {
	p := s.pages[block/seenPage]
	if p == nil {
		if s.pages == nil || len(s.pages) == seenPages {
			s.pages = make(map[uint64]*[seenPage / 64]uint64)
		}
		p = new([seenPage / 64]uint64)
		s.pages[block/seenPage] = p
	}
	word, bit := &p[block%seenPage/64], uint64(1)<<(block%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

// remove removes the blocks from first to last.
func (s *seen) remove(first, last uint64) {
	if len(s.pages) == 0 {
		return
	}
	for block := first; block <= last; block++ {
		p := s.pages[block/seenPage]
		if p == nil {
			block |= seenPage - 1 // the last block of the page
			continue
		}
		p[block%seenPage/64] &^= 1 << (block % 64)
	}
}
