package draw

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/softmkey/softmkey/internal/base/number"
)

// Hex is a number that a trace holds as a string, such as "0x7f00".
type Hex uint64

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) error {
	n, err := number.Parse(string(text), 64)
	*h = Hex(n)
	return err
}

// Entry is an entry of a layout or a scatter/gather entry.
type Entry struct {
	Addr   Hex    `json:"addr"`
	Length uint32 `json:"length"`
	LKey   uint32 `json:"lkey"`
	Step   uint32 `json:"step"` // distance between pieces of an interleaved layout, in bytes
}

// Interleaved is an interleaved layout: its entries, repeated, each a step further.
type Interleaved struct {
	Repeat  uint32  `json:"repeat"`
	Entries []Entry `json:"entries"`
}

// Domain is the signature of one domain of a memory key.
type Domain struct {
	Type      string  `json:"type"`
	BlockSize uint64  `json:"block_size"`
	FieldSize uint64  `json:"field_size"`
	AppTag    *uint16 `json:"app_tag"`
	RefTag    *uint32 `json:"ref_tag"`
	IncRef    bool    `json:"ref_tag_increments"`
}

// signed reports whether the domain has fields.
func (d *Domain) signed() bool {
	return d != nil && d.Type != "" && d.Type != "none" && d.BlockSize > 0 && d.BlockSize < mostBlock && d.FieldSize < mostBlock
}

// mostBlock is larger than the size of any block. Larger numbers in a trace are mistakes.
const mostBlock = 1 << 32

// stride returns the bytes of a block with its field; 0: no signature.
func (d *Domain) stride() uint64 {
	if !d.signed() {
		return 0
	}
	return d.BlockSize + d.FieldSize
}

// describe returns the domain in a few words.
func (d *Domain) describe() string {
	if !d.signed() {
		return "no signature"
	}
	name := map[string]string{"t10dif": "T10-DIF", "crc32": "CRC32", "crc32c": "CRC32C", "crc64": "CRC64"}[d.Type]
	return fmt.Sprintf("%s, %d+%d", cmp.Or(name, d.Type), d.BlockSize, d.FieldSize)
}

// Crypto is the encryption of a memory key.
type Crypto struct {
	TX           string `json:"tx"`
	Order        string `json:"order"`
	DataUnitSize uint64 `json:"data_unit_size"`
	DEK          uint32 `json:"dek"`
}

// Record is a line of a trace, with the fields that pictures need. docs/trace.schema.json describes it.
type Record struct {
	Time    time.Time `json:"time"`
	Process int       `json:"process"`
	Kind    string    `json:"kind"`
	Object  string    `json:"object"`
	Number  uint32    `json:"number"`
	Action  string    `json:"action"`
	Fields  struct {
		Request     uint64       `json:"request"`
		Opcode      string       `json:"opcode"`
		MKey        uint32       `json:"mkey"`
		Access      []string     `json:"access"`
		List        []Entry      `json:"list"`
		Interleaved *Interleaved `json:"interleaved"`
		Memory      *Domain      `json:"memory_signature"`
		Wire        *Domain      `json:"wire_signature"`
		Crypto      *Crypto      `json:"crypto"`
		SGEs        []Entry      `json:"sges"`
		Inline      uint64       `json:"inline"`
		RKey        uint32       `json:"rkey"`
		QP          uint32       `json:"qp"`
		Domain      string       `json:"domain"`
		Block       uint64       `json:"block"`
		Offset      uint64       `json:"offset"`
		Stored      Hex          `json:"stored"`
		Computed    Hex          `json:"computed"`
		Reported    bool         `json:"reported"`
		From        string       `json:"from"`
		By          string       `json:"by"`
		Remote      string       `json:"remote"`
		DestQP      uint32       `json:"dest_qp"`
		PathMTU     uint32       `json:"path_mtu"`
		Timeout     *uint32      `json:"timeout"`
		RetryCnt    uint32       `json:"retry_cnt"`
		RNRRetry    uint32       `json:"rnr_retry"`
	} `json:"fields"`
}

// mostRecords is the largest number of records of a trace. A record takes about a kilobyte of memory, however
// short its line is.
const mostRecords = 1 << 20

// mostLine is the length in bytes of the longest line that ReadTrace takes.
const mostLine = 4 << 20

// ReadTrace reads a trace that softmkey run --trace-format json wrote. A line that is not a
// record is an error.
func ReadTrace(r io.Reader) ([]Record, error) { return readTrace(r, mostRecords) }

// readTrace is ReadTrace with the largest number of records.
func readTrace(r io.Reader, most int) ([]Record, error) {
	var all []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostLine)
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("draw takes recordings of --pcap and traces of softmkey run --trace-format json, and line %d is no record of a trace: %w", n, err)
		}
		if len(all) == most {
			return nil, fmt.Errorf("line %d: a trace may have %d records: draw a part of it, for example of head -n %d", n, most, most)
		}
		all = append(all, rec)
	}
	return all, lines.Err()
}

// Bad is a bad block that a key has found.
type Bad struct {
	Kind     string // "bad guard", "bad application tag" or "bad reference tag"
	Domain   string // "memory" or "wire"
	Block    uint64
	Offset   uint64 // in the domain
	Stored   uint64
	Computed uint64
	Where    string // further text about the block, or ""
	Time     time.Time
}

// Key is the configuration of a memory key, or the blocks of a file.
type Key struct {
	Title   string // "": the title of a memory key, made from its number
	Number  uint32
	Pieces  []Entry // in order; none, and no interleaved layout: only the wire domain is drawn
	More    uint64  // bytes of pieces that are not in Pieces
	Length  uint64  // bytes of the wire domain, if there are no pieces
	First   uint64  // number of the first block that is shown, for the blocks of a file
	Memory  *Domain
	Wire    *Domain
	Crypto  *Crypto
	Access  []string
	Process int
	Time    time.Time
	Bad     []Bad
	Narrow  bool // the picture is for a column of 450 pixels: it has fewer blocks

	interleaved *Interleaved // not yet in Pieces: a trace can have many keys, of which few are drawn
}

// expanded returns a copy of the key whose interleaved layout is in Pieces.
func (k *Key) expanded() *Key {
	l := k.interleaved
	c := *k
	if l == nil {
		return &c
	}
	c.interleaved, c.Pieces, c.More = nil, nil, 0
	n := uint32(0)
	for ; n < l.Repeat && len(l.Entries) > 0 && len(c.Pieces)+len(l.Entries) <= mostPieces; n++ {
		for _, e := range l.Entries {
			c.Pieces = append(c.Pieces, Entry{Addr: e.Addr + Hex(uint64(n)*uint64(e.Step)), Length: e.Length, LKey: e.LKey})
		}
	}
	for _, e := range l.Entries {
		c.More += uint64(e.Length) * uint64(l.Repeat-n)
	}
	return &c
}

// mostPieces is the largest number of pieces that are drawn of an interleaved layout.
const mostPieces = 4096

// Keys returns the configurations of memory keys in a trace, in the order of their configuration,
// with the bad blocks that were found with each.
func Keys(trace []Record) []*Key {
	var all []*Key
	last := map[uint32]*Key{} // the latest configuration of each key, by its index (its number without the tag)
	for i := range trace {
		r := &trace[i]
		f := &r.Fields
		switch {
		case r.Kind == "request" && r.Action == "UMR" && (f.List != nil || f.Interleaved != nil || f.Wire != nil || f.Crypto != nil):
			k := &Key{Number: f.MKey, Pieces: f.List, Memory: f.Memory, Wire: f.Wire, Crypto: f.Crypto, Access: f.Access, Process: r.Process, Time: r.Time}
			if old := last[f.MKey>>8]; old != nil { // attributes that a configuration does not set stay
				if f.List == nil && f.Interleaved == nil {
					k.Pieces, k.interleaved = old.Pieces, old.interleaved
				}
				if f.Wire == nil {
					k.Memory, k.Wire = old.Memory, old.Wire
				}
				if f.Crypto == nil {
					k.Crypto = old.Crypto
				}
				if f.Access == nil {
					k.Access = old.Access
				}
			}
			if l := f.Interleaved; l != nil {
				k.Pieces, k.interleaved = nil, l
			}
			last[f.MKey>>8] = k
			all = append(all, k)
		case r.Kind == "signature":
			if k := last[r.Number>>8]; k != nil {
				fate := "not reported"
				if f.Reported {
					fate = "reported in its CQ"
				}
				k.Bad = append(k.Bad, Bad{
					Kind: r.Action, Domain: f.Domain, Block: f.Block, Offset: f.Offset, Stored: uint64(f.Stored), Computed: uint64(f.Computed),
					Where: fmt.Sprintf("QP %#x, %s", f.QP, fate), Time: r.Time,
				})
			}
		}
	}
	return all
}
