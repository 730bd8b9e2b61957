package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// reporter reports bad blocks and the outcome, in words or as JSON.
type reporter struct {
	command string
	input   string
	json    bool
	errors  io.Writer // for bad blocks
	final   io.Writer // for the JSON of the outcome
	bar     *progress
}

// kinds are the names of the kinds in JSON.
var kinds = map[sig.Kind]string{
	sig.BadGuard:  "guard",
	sig.BadAppTag: "app_tag",
	sig.BadRefTag: "ref_tag",
}

// badBlock is a bad block as JSON. Stored and computed are strings of hexadecimal
// digits, because many readers of JSON cannot hold a number of 64 bits.
type badBlock struct {
	Kind     string `json:"kind"`
	Domain   string `json:"domain"`
	Block    uint64 `json:"block"`
	Offset   uint64 `json:"offset"`
	Stored   string `json:"stored"`
	Computed string `json:"computed"`
}

func newBadBlock(b *mkey.BadBlock) *badBlock {
	if b == nil {
		return nil
	}
	return &badBlock{
		Kind: kinds[b.Sig.Kind], Domain: b.Domain.String(),
		Block: b.Sig.Block, Offset: b.Sig.Offset,
		Stored: fmt.Sprintf("%#x", b.Sig.Stored), Computed: fmt.Sprintf("%#x", b.Sig.Computed),
	}
}

// outcome is the final report as JSON.
type outcome struct {
	Command  string    `json:"command"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
	Blocks   uint64    `json:"blocks"`
	Errors   uint64    `json:"errors"`
	Tail     uint64    `json:"tail_bytes"`
	Seconds  float64   `json:"seconds"`
	Rate     float64   `json:"gb_per_second"` // of input
	First    *badBlock `json:"first_error"`
}

// bad reports a bad block on standard error.
func (r *reporter) bad(b *mkey.BadBlock) {
	defer r.bar.hide()()
	if r.json {
		encodeJSON(r.errors, newBadBlock(b))
		return
	}
	fmt.Fprintf(r.errors, "softmkey: %s: %v\n", r.input, &b.Sig)
}

// done reports the outcome.
func (r *reporter) done(m mkeyio.Report) {
	if r.json {
		o := outcome{
			Command: r.command,
			BytesIn: m.BytesIn, BytesOut: m.BytesOut,
			Blocks: m.Blocks, Errors: m.Errors, Tail: m.Tail,
			Seconds: m.Elapsed.Seconds(), First: newBadBlock(m.First),
		}
		if o.Seconds > 0 {
			o.Rate = float64(m.BytesIn) / 1e9 / o.Seconds
		}
		encodeJSON(r.final, o)
		return
	}
	if m.Tail > 0 {
		fmt.Fprintf(r.errors, "softmkey: warning: %s: the last %d bytes of data are no whole block: they have no field and no check\n", r.input, m.Tail)
	}
}

// encodeJSON prints v as a line of JSON. The writer remembers an error.
func encodeJSON(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }
