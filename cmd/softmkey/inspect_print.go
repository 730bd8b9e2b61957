package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/softmkey/softmkey/internal/tool/filecopy"
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

// show returns the parts of a T10-DIF field, or the value of a CRC.
func (p *tablePrinter) show(field []byte) string {
	if p.format.Type == sig.T10DIF {
		return fmt.Sprintf("%x  %x %x", field[:2], field[2:4], field[4:])
	}
	return "0x" + hex.EncodeToString(filecopy.FieldDigits(p.format, field))
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
		Bad      string `json:"kind,omitempty"`
		Escaped  bool   `json:"escaped,omitempty"`
	}{b.number, b.offset, filecopy.FieldNumber(p.format, b.stored), filecopy.FieldNumber(p.format, b.computed), filecopy.KindName(b.bad), b.escaped})
}
