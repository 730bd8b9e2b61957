package prm

// General objects: those of CREATE_GENERAL_OBJECT, which have a type.
const (
	ObjectDEK         uint16 = 0x0c
	ObjectCryptoLogin uint16 = 0x1f
	objOff                   = 0x10 * 8
	KeySizeField             = 0x80 // bytes of a DEK object's key
	KeyPurposeXTS            = 3
)

// ObjectHeader is the head of a command on a general object.
type ObjectHeader struct {
	Type uint16
	ID   uint32
}

// ParseObject decodes the head of a command on a general object.
func ParseObject(in []byte) ObjectHeader {
	return ObjectHeader{Type: uint16(Bits(in, 0x30, 16)), ID: uint32(Bits(in, 0x40, 32))}
}

// PutObjectID writes the number of an object to an answer.
func PutObjectID(out []byte, id uint32) { SetBits(out, 0x40, 32, uint64(id)) }

// DEK is the object that holds a data encryption key.
type DEK struct {
	Size      uint8 // 0: 128 bit, 1: 256 bit
	HasKeyTag bool
	Purpose   uint8
	PD        uint32
	Opaque    [8]byte
	Key       [KeySizeField]byte
}

// ParseDEK decodes the object in a command that creates a DEK.
func ParseDEK(in []byte) (d DEK) {
	d = DEK{
		Size: uint8(Bits(in, objOff+0x54, 4)), HasKeyTag: Bits(in, objOff+0x58, 1) != 0, Purpose: uint8(Bits(in, objOff+0x5c, 4)),
		PD: uint32(Bits(in, objOff+0x68, 24)),
	}
	copyAt(d.Opaque[:], in, objOff/8+0x30)
	copyAt(d.Key[:], in, objOff/8+0x40)
	return d
}

func copyAt(dst, b []byte, off int) {
	if off < len(b) {
		copy(dst, b[off:])
	}
}

// PutDEK writes the visible part of a DEK to the answer of a query: its state and
// metadata, never the key.
func PutDEK(out []byte, d *DEK, state uint8) {
	SetBits(out, objOff+0x40, 8, uint64(state))
	SetBits(out, objOff+0x54, 4, uint64(d.Size))
	if d.HasKeyTag {
		SetBits(out, objOff+0x58, 1, 1)
	}
	SetBits(out, objOff+0x5c, 4, uint64(d.Purpose))
	SetBits(out, objOff+0x68, 24, uint64(d.PD))
	if len(out) > objOff/8+0x30 {
		copy(out[objOff/8+0x30:], d.Opaque[:])
	}
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
	copyAt(l.Wrapped[:], in, objOff/8+0x40)
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
