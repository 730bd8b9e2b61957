// Package identity makes identifiers of namespaces. Hosts take two namespaces with the same identifier for two
// paths to one disk (multipath), and read and write either, so that identifiers must be globally unique (Base 4.7.1,
// of the NVM Express Base Specification 2.0).
//
// The identifier of an image comes from the machine and from what makes the image one of its files or devices. It
// stays the same over restarts, and when the image is renamed. A copy has another one.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"strings"
)

// ID is an identifier: an NGUID, and a UUID of version 8.
type ID [16]byte

// newID returns an identifier that nobody can take facts of the machine from.
func newID(facts ...string) (id ID) {
	h := sha256.New()
	h.Write([]byte("softmkey target"))
	for _, f := range facts { // with its length, so that two lists of facts never have the same text
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(f))))
		h.Write([]byte(f))
	}
	copy(id[:], h.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id
}

// Of returns the identifier of an image.
func Of(f *os.File) (ID, error) {
	what, err := facts(f)
	if err != nil {
		return ID{}, err
	}
	return newID(append([]string{machine()}, what...)...), nil
}

// Serial returns the serial number of a controller whose subsystem has a name and namespaces with these identifiers.
func Serial(nqn string, ids []ID) string {
	list := []string{"serial", nqn}
	for _, id := range ids {
		list = append(list, string(id[:]))
	}
	id := newID(list...)
	return strings.ToUpper(hex.EncodeToString(id[8:]))
}

// Parse reads a UUID.
func Parse(s string) (id ID, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) || strings.Trim(s, "0-") == "" {
		return id, errors.New("must be a UUID: 32 hexadecimal digits, not all of them 0")
	}
	copy(id[:], b)
	return id, nil
}

// firstLine returns the first line of the first of some files that exists and has one.
func firstLine(names ...string) string {
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil {
			if line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n"); line != "" {
				return line
			}
		}
	}
	return ""
}
