package keyplan

import (
	"fmt"
	"reflect"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// Terms are what both sides of a copy must agree on, in the words of the command
// line: the tag of a field is the name of its flag. An empty field was not given.
//
// Crypto, Order, PeerCrypto and PeerOrder name what happens to the data on its way
// from SRC to DST. So a sender that encrypts and a receiver that decrypts leave
// the same bytes at both ends, and what a receiver decrypts was encrypted before
// it was signed if the receiver's signature work comes "before" its crypto.
type Terms struct {
	Op            string `json:"op,omitempty"`              // write (default), send or read
	Mem           string `json:"mem,omitempty"`             // SIG of the sender's memory, as sig.ParseFormat reads it; default none
	Wire          string `json:"wire,omitempty"`            // SIG of the wire; default none
	PeerMem       string `json:"peer-mem,omitempty"`        // SIG of the receiver's memory; default none
	CheckMask     string `json:"check-mask,omitempty"`      // of the sender's key, and of the receiver's if that has no other; default 0xFF
	CopyMask      string `json:"copy-mask,omitempty"`       // of the sender's key; default: what both its domains have in common
	PeerCheckMask string `json:"peer-check-mask,omitempty"` // of the receiver's key
	PeerCopyMask  string `json:"peer-copy-mask,omitempty"`  // of the receiver's key
	Crypto        string `json:"crypto,omitempty"`          // encrypt or decrypt, from SRC to the wire
	Order         string `json:"order,omitempty"`           // before or after: where the sender's signature work stands to its crypto
	PeerCrypto    string `json:"peer-crypto,omitempty"`     // none, encrypt or decrypt, from the wire to DST
	PeerOrder     string `json:"peer-order,omitempty"`      // before or after: where the receiver's signature work stands to its crypto
	Unit          string `json:"unit,omitempty"`            // bytes of a data unit; default: a block of the encrypted stream
	Tweak         string `json:"tweak,omitempty"`           // of the first data unit, decimal or hexadecimal; default 0
	MTU           string `json:"mtu,omitempty"`             // path MTU in bytes; default: what both devices can
}

// Join returns the terms of two sides that know a part each. What both give must be
// the same. The error names the flag.
func (t Terms) Join(other Terms) (Terms, error) {
	a, b := reflect.ValueOf(&t).Elem(), reflect.ValueOf(&other).Elem()
	for i := range a.NumField() {
		mine, theirs := a.Field(i), b.Field(i)
		switch {
		case mine.String() == "":
			mine.SetString(theirs.String())
		case theirs.String() != "" && theirs.String() != mine.String():
			return t, fmt.Errorf("--%s is %s here and %s on the other side", flagName(a.Type().Field(i)), mine, jsonline.Clean(theirs.String()))
		}
	}
	return t, nil
}

// flagName returns the name of the flag that a field is given by.
func flagName(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	return tag[:len(tag)-len(",omitempty")]
}
