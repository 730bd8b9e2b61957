package adapter

import (
	"fmt"
	"strings"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// Structured is a value of a field with parts. A trace in text has its String, one in JSON its
// members.
type Structured interface {
	fmt.Stringer
	structured()
}

// Hex is a number of 64 bits. JSON has it as a string of hexadecimal digits, because many
// readers of JSON cannot hold a number of 64 bits.
type Hex uint64

// String returns the number in hexadecimal.
func (h Hex) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Names are the names of flags that are set.
type Names []string

func (Names) structured() {}

// String returns the names with "|" between them.
func (n Names) String() string { return strings.Join(n, "|") }

// regionAccessNames returns the names of a region's access flags.
func regionAccessNames(access uint32) Names {
	const known = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic | ibv.MWBind | rdma.ZeroBased
	a := rdma.Access(access) & known
	if a == 0 {
		return Names{}
	}
	return strings.Split(a.String(), "|")
}

// ListEntry is an entry of a memory key's layout: Length bytes of the key LKey.
type ListEntry struct {
	Addr   Hex    `json:"addr"`
	Length uint32 `json:"length"`
	LKey   uint32 `json:"lkey"`
}

// List is a layout of entries one after the other.
type List []ListEntry

func (List) structured() {}

func (l List) String() string {
	s := make([]string, len(l))
	for i, e := range l {
		s[i] = fmt.Sprintf("%d bytes from %v of key %#x", e.Length, e.Addr, e.LKey)
	}
	return strings.Join(s, ", ")
}

// StrideEntry is an entry of an interleaved layout: Length bytes of each Step.
type StrideEntry struct {
	ListEntry
	Step uint32 `json:"step"`
}

// Strides is an interleaved layout.
type Strides struct {
	Repeat  uint32        `json:"repeat"`
	Entries []StrideEntry `json:"entries"`
}

func (Strides) structured() {}

func (l Strides) String() string {
	s := make([]string, len(l.Entries))
	for i, e := range l.Entries {
		s[i] = fmt.Sprintf("%d of every %d bytes from %v of key %#x", e.Length, e.Step, e.Addr, e.LKey)
	}
	return fmt.Sprintf("%d times: %s", l.Repeat, strings.Join(s, ", "))
}

// Signature is the signature of one domain of a memory key. The tags are those of a T10-DIF.
type Signature struct {
	Type      string  `json:"type"`                 // none, t10dif, crc32, crc32c, crc64
	Guard     string  `json:"guard,omitempty"`      // t10dif: crc or ip-checksum
	BlockSize int     `json:"block_size,omitempty"` // bytes of data in a block
	FieldSize int     `json:"field_size,omitempty"` // bytes of its field
	AppTag    *uint16 `json:"app_tag,omitempty"`
	RefTag    *uint32 `json:"ref_tag,omitempty"`
	IncRef    bool    `json:"ref_tag_increments,omitempty"`
}

func (Signature) structured() {}

func (s Signature) String() string {
	if s.Type == "none" {
		return s.Type
	}
	name := s.Type
	if s.Guard != "" {
		name += " with " + s.Guard
	}
	text := fmt.Sprintf("%s on blocks of %d bytes", name, s.BlockSize)
	if s.AppTag != nil {
		text += fmt.Sprintf(", application tag %#x, reference tag %#x", *s.AppTag, *s.RefTag)
	}
	return text
}

func describeDomain(d *prm.SigDomain) Signature {
	s := Signature{Type: d.Type.String(), BlockSize: d.BlockSize, FieldSize: d.FieldSize()}
	if d.Type == sig.T10DIF {
		app, ref := d.AppTag, uint32(d.RefTag)
		s.AppTag, s.RefTag, s.IncRef, s.Guard = &app, &ref, d.Remaps(), "crc"
		if d.Guard == sig.GuardCSUM {
			s.Guard = "ip-checksum"
		}
	}
	return s
}

// CryptoAttributes is the encryption of a memory key.
type CryptoAttributes struct {
	TX           string `json:"tx"`    // encrypt or decrypt: what happens on the way to the wire
	Order        string `json:"order"` // before or after: whether that is before the signature or after it, on the way to the wire
	DataUnitSize int    `json:"data_unit_size"`
	DEK          uint32 `json:"dek"`
}

func (CryptoAttributes) structured() {}

func (c CryptoAttributes) String() string {
	order := "before"
	if c.Order == "after" {
		order = "behind"
	}
	return fmt.Sprintf("%s %s the signature on TX, units of %d bytes, DEK %#x", c.TX, order, c.DataUnitSize, c.DEK)
}

// describeUMR describes the content of a UMR.
func describeUMR(u *prm.UMR, number uint32) []Field {
	fields := []Field{value("mkey", number)}
	if u.Mask&prm.MaskFree != 0 && u.Free {
		return append(fields, value("free", true))
	}
	if u.Mask&prm.MaskMKey != 0 {
		fields = append(fields, value("tag", u.Tag))
	}
	if u.Mask&prm.MaskAccess != 0 {
		fields = append(fields, value("access", accessNames(u.Access)))
	}
	switch {
	case u.HasLayout && u.Interleaved:
		s := Strides{Repeat: u.Repeat}
		for _, e := range u.Strides {
			s.Entries = append(s.Entries, StrideEntry{ListEntry{Hex(e.Addr), uint32(e.Count), e.LKey}, uint32(e.Step)})
		}
		fields = append(fields, value("interleaved", s))
	case u.HasLayout && len(u.Pages) > 0:
		fields = append(fields, value("pages", uint32(len(u.Pages))))
	case u.HasLayout:
		l := List{}
		for _, e := range u.Entries {
			l = append(l, ListEntry{Hex(e.Addr), e.Length, e.LKey})
		}
		fields = append(fields, value("list", l))
	}
	if u.HasSignature {
		fields = append(fields, value("memory_signature", describeDomain(&u.Signature.Memory)), value("wire_signature", describeDomain(&u.Signature.Wire)),
			value("check_mask", u.Signature.CheckMask))
		if u.Signature.Same {
			fields = append(fields, value("copy_mask", u.Signature.CopyMask))
		}
	} else if u.HasTransaction {
		t := &u.Transaction
		fields = append(fields, value("transaction_signature", "crc32c"), value("bytes", t.Length), value("init", t.Init), value("generate", t.Generate), value("psv", t.PSV))
	} else if u.Mask&prm.MaskBSF != 0 && !u.BSFEnable {
		fields = append(fields, value("signature", "reset"))
	}
	if u.HasCrypto {
		c := CryptoAttributes{TX: "encrypt", Order: "after", DataUnitSize: u.Crypto.DataUnitSize, DEK: u.Crypto.DEK}
		switch u.Crypto.Order {
		case prm.EncryptedMemorySignature:
			c.TX, c.Order = "decrypt", "before"
		case prm.EncryptedRawWire:
			c.Order = "before"
		case prm.EncryptedRawMemory:
			c.TX = "decrypt"
		}
		fields = append(fields, value("crypto", c))
	}
	return fields
}
