package filecopy

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math/big"

	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// Report is the result of a copy, for people and programs.
type Report struct {
	Op       string   `json:"op"`
	MTU      int      `json:"mtu"`
	Bytes    int64    `json:"bytes"` // bytes of data, fields not counted
	Chunks   uint64   `json:"chunks"`
	Chunk    int64    `json:"chunk_bytes"` // bytes of data in every chunk but the last
	Seconds  float64  `json:"seconds"`
	GBps     float64  `json:"gb_per_second"` // of data
	Memory   Contents `json:"memory"`
	Wire     Contents `json:"wire"`
	Peer     Contents `json:"peer_memory"`
	Sender   *Side    `json:"sender"`
	Receiver *Side    `json:"receiver"`

	// FlipMissed reports that a byte was flipped and no key found it.
	FlipMissed bool `json:"flip_missed,omitempty"`
}

// Contents describes the content of a domain.
type Contents struct {
	Signature string `json:"signature"`
	Encrypted string `json:"encrypted"`
	Bytes     int64  `json:"bytes"`
	Begins    string `json:"begins_with"`           // bytes in hexadecimal
	Field     string `json:"first_field,omitempty"` // the number in it
}

// Side holds the findings of one side's key and, if the side is in this process, the
// counters of its device.
type Side struct {
	Device      string            `json:"device,omitempty"`
	Key         string            `json:"key"`        // "memory key" or "plain region"
	Checked     bool              `json:"checked"`    // the key has checked the signature of a block
	Tail        int64             `json:"tail_bytes"` // bytes of data after the last whole block that the key has checked; they have no field
	BadChunks   uint64            `json:"bad_chunks"`
	First       *Bad              `json:"first_bad"`
	Completions map[string]uint64 `json:"completions,omitempty"`
	Packets     *rdma.Counters    `json:"packets,omitempty"`
}

// Bad is a bad block. Stored and computed are strings of hexadecimal digits, because
// many readers of JSON cannot hold a number of 64 bits.
type Bad struct {
	Kind     string `json:"kind"`
	Domain   string `json:"domain"`
	Block    uint64 `json:"block"`
	Offset   uint64 `json:"offset"`
	Stored   string `json:"stored"`
	Computed string `json:"computed"`
}

// KindName returns the name of a kind in JSON, "" for none.
func KindName(k sig.Kind) string {
	return map[sig.Kind]string{sig.BadGuard: "guard", sig.BadAppTag: "app_tag", sig.BadRefTag: "ref_tag", sig.BadStorageTag: "storage_tag"}[k]
}

// FieldNumber returns the number in a field as JSON has it: hexadecimal digits after 0x. A field with
// tags is one number of guard, application tag, storage tag and reference tag. Other metadata has no
// part in it.
func FieldNumber(f sig.Format, field []byte) string {
	x := f.Field(field)
	storage, ref := f.TagBits()
	n := new(big.Int).SetUint64(x.Guard)
	for _, part := range []struct {
		value uint64
		bits  int
	}{{uint64(x.AppTag), 16}, {x.StorageTag, storage}, {x.RefTag, ref}} {
		if ref != 0 || storage != 0 {
			n.Lsh(n, uint(part.bits)).Or(n, new(big.Int).SetUint64(part.value))
		}
	}
	return fmt.Sprintf("%#x", n)
}

// NewBad returns a bad block for a report, nil for none.
func NewBad(b *mkey.BadBlock) *Bad {
	if b == nil {
		return nil
	}
	return &Bad{
		Kind: KindName(b.Sig.Kind), Domain: b.Domain.String(), Block: b.Sig.Block, Offset: b.Sig.Offset,
		Stored: fmt.Sprintf("%#x", b.Sig.Stored), Computed: fmt.Sprintf("%#x", b.Sig.Computed),
	}
}

// NewReport makes a report from the outcomes of the sides. One of sent and received is
// nil if that side is in another process, and so is its device.
func NewReport(p *keyplan.Plan, from, to *verbs.Device, sent, received *Outcome) Report {
	o := cmp.Or(sent, received)
	r := Report{
		Op: p.Op, MTU: o.mtu, Bytes: o.Data, Chunks: o.Chunks, Chunk: p.Chunk, Seconds: o.Elapsed.Seconds(),
		Sender: newSide(&p.Sender), Receiver: newSide(&p.Receiver),
	}
	sender, receiver := p.Checks()
	r.Sender.Checked, r.Receiver.Checked = sender && o.Data >= p.Memory.Block, receiver && o.Data >= p.Wire.Block
	if r.Sender.Checked {
		r.Sender.Tail = o.Data % p.Memory.Block
	}
	if r.Receiver.Checked {
		r.Receiver.Tail = o.Data % p.Wire.Block
	}
	if r.Seconds > 0 {
		r.GBps = float64(r.Bytes) / 1e9 / r.Seconds
	}
	// DONE and RESULT have told each side the other's samples and bad blocks.
	r.Memory, r.Wire, r.Peer = contents(&p.Memory, o.Data, o.memory), contents(&p.Wire, o.Data, o.wire), contents(&p.Peer, o.Data, o.peer)
	if sent != nil {
		r.FlipMissed = sent.FlipMissed
		r.Sender.own(from, sent)
		r.Receiver.other(sent)
	}
	if received != nil {
		r.Receiver.own(to, received)
		if sent == nil {
			r.Sender.other(received)
		}
	}
	return r
}

func newSide(k *keyplan.Key) *Side {
	s := &Side{Key: "memory key"}
	if k.Plain() {
		s.Key = "plain region"
	}
	return s
}

func (s *Side) own(dev *verbs.Device, o *Outcome) {
	s.Device = dev.Addr().String()
	s.BadChunks, s.First = o.Bad, NewBad(o.First)
	s.Completions = o.Completions
	packets := dev.Counters()
	s.Packets = &packets
}

func (s *Side) other(o *Outcome) { s.BadChunks, s.First = o.PeerBad, NewBad(o.PeerBad1) }

func contents(d *keyplan.Domain, data int64, l sample) Contents {
	c := Contents{Signature: d.Signature(), Encrypted: d.EncryptedWords(), Bytes: d.Len(data), Begins: hex.EncodeToString(l.First[:l.N])}
	if d.Format != nil && l.Width > 0 {
		c.Field = FieldNumber(*d.Format, l.Field[:l.Width])
	}
	return c
}
