package main

import (
	"cmp"
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
	parts := p.heads()
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

// guardDigits returns the hexadecimal digits of a guard or CRC.
func (p *tablePrinter) guardDigits() int {
	return cmp.Or(map[sig.Type]int{sig.T10DIF: 4, sig.NVMe16: 4, sig.CRC64: 16, sig.NVMe64: 16}[p.format.Type], 8)
}

// tagDigits returns the hexadecimal digits of storage tag and reference tag.
func (p *tablePrinter) tagDigits() (storage, ref int) {
	storage, ref = p.format.TagBits()
	return (storage + 3) / 4, (ref + 3) / 4
}

// heads returns the names of the parts above their columns, or "" for a CRC.
func (p *tablePrinter) heads() string {
	storage, ref := p.tagDigits()
	if storage == 0 && ref == 0 {
		return ""
	}
	text := fmt.Sprintf("%-*s %-4s ", max(p.guardDigits(), len("guard")), "guard", "app")
	if storage != 0 {
		text += fmt.Sprintf("%-*s ", max(storage, len("storage")), "storage")
	}
	return text + "ref"
}

// show returns the parts of a field with tags, or the value of a CRC.
func (p *tablePrinter) show(field []byte) string {
	x, digits := p.format.Field(field), p.guardDigits()
	storage, ref := p.tagDigits()
	if storage == 0 && ref == 0 {
		return fmt.Sprintf("0x%0*x", digits, x.Guard)
	}
	text := fmt.Sprintf("%-*s %04x ", max(digits, len("guard")), fmt.Sprintf("%0*x", digits, x.Guard), x.AppTag)
	if storage != 0 {
		text += fmt.Sprintf("%-*s ", max(storage, len("storage")), fmt.Sprintf("%0*x", storage, x.StorageTag))
	}
	if ref != 0 {
		text += fmt.Sprintf("%0*x", ref, x.RefTag)
	}
	return text
}

// jsonPrinter prints an object for each block. A field is the number in it, in hexadecimal.
type jsonPrinter struct {
	*json.Encoder
	format sig.Format
}

func (p jsonPrinter) begin(uint64, uint64) {}

func (p jsonPrinter) block(b inspected) {
	// An error of writing is reported when the output is flushed.
	_ = p.Encode(struct {
		Block    uint64 `json:"block"`
		Offset   uint64 `json:"offset"`
		Stored   string `json:"stored"`
		Computed string `json:"computed"`
		Bad      string `json:"kind,omitempty"`
		Escaped  bool   `json:"escaped,omitempty"`
	}{b.number, b.offset, filecopy.FieldNumber(p.format, b.stored), filecopy.FieldNumber(p.format, b.computed), filecopy.KindName(b.bad), b.escaped})
}
