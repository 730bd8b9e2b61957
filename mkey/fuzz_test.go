package mkey_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// tape converts the fuzzer's bytes to values; after the last byte it returns zeros.
type tape struct{ b []byte }

func (t *tape) u8() uint8 {
	if len(t.b) == 0 {
		return 0
	}
	v := t.b[0]
	t.b = t.b[1:]
	return v
}

func (t *tape) u64() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = t.u8()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// size returns a number that is small, close to a multiple of a block, huge, or
// arbitrary.
func (t *tape) size() uint64 {
	sizes := []uint64{0, 1, 4, 8, 16, 64, 512, 516, 520, 528, 4048, 4096, 4104, 4160, 32 << 10, 1 << 32, 1 << 56, 1 << 63}
	switch m := t.u8(); m % 4 {
	case 0:
		return uint64(t.u8())
	case 1:
		return sizes[int(t.u8())%len(sizes)]*uint64(m>>2) + uint64(int8(t.u8()))
	case 2:
		return sizes[int(t.u8())%len(sizes)] * uint64(m>>5)
	}
	return t.u64() >> (t.u8() % 64)
}

func (t *tape) format() *sig.Format {
	b := t.u8()
	if b%4 == 0 {
		return nil
	}
	sizes := append(sig.KeyBlockSizes(), 0, 513, 1024)
	f := &sig.Format{Type: sig.Type(b >> 2 % 9), BlockSize: sizes[int(t.u8())%len(sizes)], Seed: sig.Seed(t.u8() % 4)}
	if f.Type == sig.T10DIF || b == 255 {
		f.Guard, f.AppTag, f.RefTag, f.Flags = sig.Guard(t.u8()%3), uint16(t.u8())*257, uint64(uint32(t.u64())), sig.Flags(t.u8()%65)
	}
	return f
}

func (t *tape) memory(mem mkey.Bytes, inner *mkey.Key) mkey.Memory {
	switch b := t.u8(); {
	case b < 160:
		return mem
	case b < 200:
		return inner
	case b < 220:
		return virtual{}
	case b < 240:
		return onlyMemory{mem}
	case b < 250:
		return &region{buf: mem, rights: rdma.Access(b & 15), short: 100}
	}
	return nil
}

func (t *tape) layout(mem mkey.Bytes, inner *mkey.Key) mkey.Layout {
	switch b := t.u8(); b % 8 {
	case 0:
		return nil
	case 1, 2:
		l := mkey.Interleaved{Repeat: uint32(t.size())}
		for range b >> 5 {
			l.Entries = append(l.Entries, mkey.Entry{Memory: t.memory(mem, inner), Addr: t.size(), Count: uint32(t.size()), Skip: uint32(t.size())})
		}
		return l
	default:
		var l mkey.List
		for range b >> 5 {
			l = append(l, mkey.Segment{Memory: t.memory(mem, inner), Addr: t.size(), Length: t.size()})
		}
		return l
	}
}

func (t *tape) conf(mem mkey.Bytes, inner *mkey.Key) (c update) {
	b := t.u8()
	c.ResetSignature = b&1 != 0
	if b == 0xFF {
		c.Space = int(int8(t.u8()))
	}
	if b&2 == 0 {
		c.Access = new(rdma.Access(15))
	}
	if b&4 == 0 {
		c.Layout = t.layout(mem, inner)
	}
	if b&8 != 0 {
		c.Signature = &mkey.Signature{Memory: t.format(), Wire: t.format(), CheckMask: new(sig.Mask(t.u8())), CopyMask: new(sig.Mask(t.u8()))}
		switch t.u8() % 3 {
		case 0:
			c.Signature.CopyMask = nil
		case 1:
			c.Signature.CheckMask, c.Signature.CopyMask = nil, nil
		}
		if m := t.u8(); m&3 == 3 {
			c.Signature.MemoryCheckMask = new(sig.Mask(m))
		} else if m&3 == 2 {
			c.Signature.WireCheckMask = new(sig.Mask(m >> 4))
		}
	}
	if b&16 != 0 {
		sizes := append(sig.KeyBlockSizes(), 0, 16, 1<<30)
		c.Crypto = &mkey.Crypto{EncryptOnTX: b&32 != 0, Order: mkey.Order(b >> 6 % 3), DataUnitSize: sizes[int(t.u8())%len(sizes)],
			InitialTweak: xts.Tweak{Lo: -uint64(b)}, DEK: mkeytest.DEK{Cipher: cipher}}
	}
	return c
}

// FuzzKey configures and uses a key several times, with arbitrary arguments. Nothing may
// panic, every refusal must be an operr.Error, and a TX must read the bytes that an RX
// wrote.
func FuzzKey(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x08\xE3\x00\x01\x08\x01\x0d\x02\x00\xFF\x00\x00"))
	f.Add([]byte("\x38\x23\x00\x00\x00\x05\x0f\x00\x05\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xFF\x00\x00\x01\x01\x01\x08\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tp := &tape{b}
		mem := make(mkey.Bytes, 64<<10)
		inner := must(create(allFlags&^mkey.CryptoOffload, 8))
		k := must(create(allFlags, 8))
		op := func(err error) {
			var oe *operr.Error
			if err != nil && !errors.As(err, &oe) {
				t.Fatalf("%T: %v", err, err)
			}
		}
		for range 6 {
			op(configure(inner, update{Access: new(rdma.Access(15)), Layout: tp.layout(mem, k)}))
			op(configure(k, tp.conf(mem, inner)))
			size, _ := k.WireLen()
			room := uint64(size)
			for range 3 {
				offset, length := tp.size(), tp.size()
				if tp.u8()%2 == 0 && room > 0 {
					offset, length = offset%room, length%room
				}
				through(t, k, offset, length, op)
			}
			if tp.u8() == 255 {
				keydoor.Of(k).Invalidate()
			}
		}
	})
}

// through transfers one range in both directions.
func through(t *testing.T, k *mkey.Key, offset, length uint64, op func(error)) {
	const most = 100_000
	if length > 1<<20 && length < 1<<57 {
		length %= 1 << 20 // longer ranges behave equally but take time
	}
	data := pattern(int(min(length, most)))
	tx, err := k.NewReader(int64(offset), int64(length))
	op(err)
	if err == nil {
		_, err := tx.ReadAt(make([]byte, len(data)), int64(length-uint64(len(data))))
		op(err)
		_, err = tx.ReadAt(data, 0)
		op(err)
		tx.Close()
	}
	d := keydoor.Of(k)
	for i, open := range []func(offset, length uint64) (keydoor.RX, error){d.RX, d.RXUpTo, d.RemoteRX} {
		rx, err := open(offset, length)
		op(err)
		if err != nil {
			continue
		}
		for left := data; len(left) > 0 && err == nil; {
			n := min(len(left), 1+offset7(offset, i)*len(left)/7)
			err = rx.Write(left[:n])
			op(err)
			left = left[n:]
		}
		op(rx.Finish())
		rx.Close()
	}
	_, err = k.Check()
	op(err)
}

func offset7(offset uint64, i int) int { return int(offset+uint64(i)) & 7 }
