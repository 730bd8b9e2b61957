package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/softmkey/softmkey/sig"
)

// tablePrinter prints blocks as an aligned table.
type tablePrinter struct {
	out    io.Writer
	format sig.Format

	number, offset, field int // widths of columns
}

func (p *tablePrinter) begin(first, last uint64) {
	p.number = max(len("BLOCK"), len(fmt.Sprint(last)))
	p.offset = max(len("OFFSET"), len(fmt.Sprint(last*uint64(p.format.Stride()))))
	parts := ""
	if p.format.Type == sig.T10DIF {
		parts = "guard app  ref"
	}
	p.field = max(len("COMPUTED"), len(p.show(make([]byte, p.format.FieldSize()))))
	fmt.Fprintf(p.out, "%*s  %*s  %-*s  %s\n", p.number, "BLOCK", p.offset, "OFFSET", p.field, "STORED", "COMPUTED")
	if parts != "" {
		fmt.Fprintf(p.out, "%*s  %*s  %-*s  %s\n", p.number, "", p.offset, "", p.field, parts, parts)
	}
}

func (p *tablePrinter) block(b inspected) {
	mark := ""
	switch {
	case b.bad != 0:
		mark = "  " + b.bad.String()
	case b.escaped:
		mark = "  escaped"
	}
	fmt.Fprintf(p.out, "%*d  %*d  %-*s  %s%s\n", p.number, b.number, p.offset, b.offset, p.field, p.show(b.stored), p.show(b.computed), mark)
}

// fieldValue returns the bytes of a field in the order of the digits of its number.
func fieldValue(f sig.Format, field []byte) []byte {
	if f.Type != sig.CRC32C && f.Type != sig.CRC64 {
		return field
	}
	v := slices.Clone(field) // little-endian
	slices.Reverse(v)
	return v
}

// fieldHex returns the number in a field as JSON has it.
func fieldHex(f sig.Format, field []byte) string {
	n := uint64(0)
	for _, b := range fieldValue(f, field) {
		n = n<<8 | uint64(b)
	}
	return fmt.Sprintf("%#x", n)
}

// show returns the parts of a T10-DIF field, or the value of a CRC.
func (p *tablePrinter) show(field []byte) string {
	if p.format.Type == sig.T10DIF {
		return fmt.Sprintf("%x  %x %x", field[:2], field[2:4], field[4:])
	}
	return "0x" + hex.EncodeToString(fieldValue(p.format, field))
}

// jsonPrinter prints an object for each block. A field is the number in it, in hexadecimal.
type jsonPrinter struct {
	*json.Encoder
	format sig.Format
}

func (p jsonPrinter) begin(uint64, uint64) {}

func (p jsonPrinter) block(b inspected) {
	// The error of writing is returned when the output is flushed.
	_ = p.Encode(struct {
		Block    uint64 `json:"block"`
		Offset   uint64 `json:"offset"`
		Stored   string `json:"stored"`
		Computed string `json:"computed"`
		Bad      string `json:"bad,omitempty"`
		Escaped  bool   `json:"escaped,omitempty"`
	}{b.number, b.offset, fieldHex(p.format, b.stored), fieldHex(p.format, b.computed), kinds[b.bad], b.escaped})
}
