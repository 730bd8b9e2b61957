package keyplan

import (
	"fmt"
	"reflect"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// Terms are the settings that both sides of a copy must agree on, in the words of the
// command line: the JSON name of a field is the name of its flag. An empty field was
// not given.
//
// Crypto, Order, PeerCrypto and PeerOrder describe the operations on the data on its
// way from SRC to DST. With a sender that encrypts and a receiver that decrypts, SRC and
// DST are equal. If PeerOrder is "before", the receiver checks signatures before it
// decrypts, so that the signatures on the wire protect ciphertext.
type Terms struct {
	Op            string `json:"op,omitempty"`              // write (default), send or read
	Mem           string `json:"mem,omitempty"`             // SIG of the sender's memory, as sig.ParseFormat reads it; default none
	Wire          string `json:"wire,omitempty"`            // SIG of the wire; default none
	PeerMem       string `json:"peer-mem,omitempty"`        // SIG of the receiver's memory; default none
	CheckMask     string `json:"check-mask,omitempty"`      // of the sender's key, and of the receiver's without PeerCheckMask; default 0xFF
	CopyMask      string `json:"copy-mask,omitempty"`       // of the sender's key; default: the parts that both its domains have in common
	PeerCheckMask string `json:"peer-check-mask,omitempty"` // of the receiver's key
	PeerCopyMask  string `json:"peer-copy-mask,omitempty"`  // of the receiver's key
	Crypto        string `json:"crypto,omitempty"`          // encrypt or decrypt, from SRC to the wire
	Order         string `json:"order,omitempty"`           // before or after: whether the sender's signature work precedes its crypto
	PeerCrypto    string `json:"peer-crypto,omitempty"`     // none, encrypt or decrypt, from the wire to DST
	PeerOrder     string `json:"peer-order,omitempty"`      // before or after: whether the receiver's signature work precedes its crypto
	Unit          string `json:"unit,omitempty"`            // bytes of a data unit; default: a block of the encrypted stream
	Tweak         string `json:"tweak,omitempty"`           // of the first data unit, decimal or hexadecimal; default 0
	MTU           string `json:"mtu,omitempty"`             // path MTU in bytes; default: the largest that both devices can do
}

// Join returns the terms of two sides, each of which gives a part of them. A term that
// both give must be the same. The error names the flag.
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
