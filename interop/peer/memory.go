package peer

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Access is a set of rights of a memory region, window or queue pair, in rxepeer's
// letters: l local write, w remote write, r remote read, a remote atomic, b binding of
// windows. An empty Access means all rights.
type Access string

// Buffer is registered memory of the guest.
type Buffer struct {
	Addr uint64 // virtual address, for remote operations
	Size int
	LKey uint32
	RKey uint32

	id int
	s  *Session
}

// NewBuffer allocates and registers size bytes, skew bytes after the start of a page.
func (s *Session) NewBuffer(size, skew int, access Access) (*Buffer, error) {
	v, err := s.command(fmt.Sprintf("buf size=%d skew=%d%s", size, skew, accessWord(access)))
	if err != nil {
		return nil, err
	}
	return &Buffer{
		Addr: v.uint("addr"), Size: size, LKey: uint32(v.uint("lkey")), RKey: uint32(v.uint("rkey")),
		id: int(v.uint("buf")), s: s,
	}, nil
}

func accessWord(a Access) string {
	if a == "" {
		return ""
	}
	return " access=" + string(a)
}

func (b *Buffer) span(off, n int) string { return fmt.Sprintf("buf=%d off=%d len=%d", b.id, off, n) }

// Fill writes bytes pos to pos+n of the pattern of seed at off; see [Pattern].
func (b *Buffer) Fill(off, n int, seed, pos uint64) error {
	_, err := b.s.command(fmt.Sprintf("fill %s seed=%d pos=%d", b.span(off, n), seed, pos))
	return err
}

// Write copies p into the buffer at off.
func (b *Buffer) Write(off int, p []byte) error {
	_, err := b.s.commandWithin(patience, "put "+b.span(off, len(p)), p)
	return err
}

// Read copies the buffer's bytes from off on to p.
func (b *Buffer) Read(off int, p []byte) error {
	if _, err := b.s.command("get " + b.span(off, len(p))); err != nil {
		return err
	}
	_, err := io.ReadFull(b.s.r, p)
	return err
}

// CRC returns the CRC-32 of IEEE 802.3 of n bytes at off, as hash/crc32.ChecksumIEEE
// computes it. It is faster than copying the bytes.
func (b *Buffer) CRC(off, n int) (uint32, error) {
	v, err := b.s.command("crc " + b.span(off, n))
	return uint32(v.uint("crc")), err
}

// Window is a memory window of type 2: an rkey for a part of a buffer, which the owner or
// a SEND with invalidate can revoke. It is created unbound.
type Window struct {
	RKey uint32 // as allocated; Bind returns the rkey to use

	id int
}

// NewWindow allocates a window.
func (s *Session) NewWindow() (*Window, error) {
	v, err := s.command("mw")
	if err != nil {
		return nil, err
	}
	return &Window{RKey: uint32(v.uint("rkey")), id: int(v.uint("mw"))}, nil
}

// Pattern fills p with bytes pos, pos+1, … of the pattern of seed: the 64-bit outputs of
// splitmix64 started at seed, each with its low byte first.
func Pattern(p []byte, seed, pos uint64) {
	const gamma = 0x9e3779b97f4a7c15
	var word [8]byte
	for len(p) > 0 {
		z := seed + (pos/8+1)*gamma
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		n := copy(p, word[pos%8:])
		p, pos = p[n:], pos+uint64(n)
	}
}
