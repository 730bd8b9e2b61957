package prm

import "github.com/softmkey/softmkey/internal/base/bitfield"

// General objects: those of CREATE_GENERAL_OBJECT, which have a type.
const (
	ObjectDEK         uint16 = 0x0c
	ObjectCryptoLogin uint16 = 0x1f
	objOff                   = 0x10 * 8
	KeySizeField             = 0x80 // bytes of a DEK object's key
	KeyPurposeXTS            = 3
)

// ObjectIDOf returns the number of the general object that a command names or an answer has. Its type is the command's
// modifier.
func ObjectIDOf(b []byte) uint32 { return uint32(Bits(b, 0x40, 32)) }

// PutObjectID writes the number of a general object to an answer or a command.
func PutObjectID(b []byte, id uint32) { SetBits(b, 0x40, 32, uint64(id)) }

// DEK is the object that holds a data encryption key.
type DEK struct {
	Size      uint8 // 0: 128 bit, 1: 256 bit
	HasKeyTag bool
	Purpose   uint8
	PD        uint32
	Opaque    [8]byte
	Key       [KeySizeField]byte
}

// fields are those that a query answers, too.
func (d *DEK) fields(f bitfield.Fields) {
	bitfield.Number(f, 0x54, 4, &d.Size)
	bitfield.Flag(f, 0x58, &d.HasKeyTag)
	bitfield.Number(f, 0x5c, 4, &d.Purpose)
	bitfield.Number(f, 0x68, 24, &d.PD)
	bitfield.Bytes(f, 0x180, d.Opaque[:])
}

// ParseDEK decodes the object in a command that creates a DEK.
func ParseDEK(in []byte) (d DEK) {
	f := bitfield.Read(in, objOff)
	d.fields(f)
	bitfield.Bytes(f, 0x200, d.Key[:])
	return d
}

// PutDEK writes the visible part of a DEK to the answer of a query: its state and
// metadata, never the key.
func PutDEK(out []byte, d *DEK, state uint8) {
	f := bitfield.Write(out, objOff)
	bitfield.Number(f, 0x40, 8, &state)
	d.fields(f)
}

// Login is the object of a crypto login.
type Login struct {
	Credential uint32
	KEK        uint32
	Wrapped    [48]byte
}

// ParseLogin decodes the object in a command that creates a login.
func ParseLogin(in []byte) (l Login) {
	l = Login{Credential: uint32(Bits(in, objOff+0x88, 24)), KEK: uint32(Bits(in, objOff+0xa8, 24))}
	bitfield.Bytes(bitfield.Read(in, objOff), 0x200, l.Wrapped[:])
	return l
}

// PutLoginState writes a login and its state, 0 (valid) or 1 (invalid), to the answer of a
// query. The values differ from those of enum mlx5dv_crypto_login_state.
func PutLoginState(out []byte, l *Login, valid bool) {
	if !valid {
		SetBits(out, objOff+0x84, 4, 1)
	}
	SetBits(out, objOff+0x88, 24, uint64(l.Credential))
	SetBits(out, objOff+0xa8, 24, uint64(l.KEK))
}
