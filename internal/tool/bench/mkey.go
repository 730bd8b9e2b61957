package bench

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// A cryptoRow is a row of the table in mlx5dv_wr_set_mkey_crypto(3): the signatures of
// both domains, the crypto on the way to the wire, and their order.
type cryptoRow struct {
	name         string
	memory, wire *sig.Format
	crypt        bool
	encrypt      bool
	order        mkey.Order
	unit         int
}

// cryptoRows returns two rows without crypto, which are not in that table, and the rows A
// to J. All signatures are T10-DIF; a second signature has other tags. Data units have 512
// bytes, or 520 if the fields are encrypted with the blocks.
func cryptoRows() []cryptoRow {
	t10 := &sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 1}
	other := &sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x1234, RefTag: 1000}
	const after, before = mkey.SignatureAfterCrypto, mkey.SignatureBeforeCrypto
	return []cryptoRow{
		{"signature on the wire", nil, t10, false, false, after, 0},
		{"signature in memory", t10, nil, false, false, after, 0},
		{"row A", nil, nil, true, true, after, 512},
		{"row B", nil, t10, true, true, after, 512},
		{"row C", nil, t10, true, true, before, 520},
		{"row D", t10, nil, true, true, before, 512},
		{"row E", t10, other, true, true, before, 520},
		{"row F", nil, nil, true, false, after, 512},
		{"row G", nil, t10, true, false, after, 512},
		{"row H", t10, nil, true, false, after, 520},
		{"row I", t10, other, true, false, after, 520},
		{"row J", t10, nil, true, false, before, 512},
	}
}

// The layouts of a key's memory.
const (
	contiguous = "contiguous"
	scattered  = "4 KiB segments"
)

// MKey returns the rows of package mkey: sending through a key for every row of mlx5's
// table of crypto and signature work, and receiving for two of them, with
// T10-DIF on blocks of 512 bytes and AES-XTS-256. For rows C and H the limit is their two
// steps, done by packages sig and xts on memory in one piece.
func MKey() []Row {
	var rows []Row
	for _, where := range []string{contiguous, scattered} {
		for _, c := range cryptoRows() {
			rows = append(rows, c.row(where, false))
			if c.name == "row C" || c.name == "row H" {
				rows = append(rows, c.row(where, true))
			}
		}
	}
	return rows
}

// row returns a row of messages that are sent or received through a key.
func (c *cryptoRow) row(where string, in bool) Row {
	k, wire := c.key(where)
	got := make([]byte, len(wire))
	r := Row{Group: "mkey", Operation: c.name + ", out", Variant: where, Size: 512, Unit: GBps}
	run := func() { send(k, got) }
	if in {
		r.Operation = c.name + ", in"
		run = func() { receive(k, wire) }
	}
	r.Ours = Case{Name: "softmkey", Work: DataSize, Run: func(times int) {
		for range times {
			run()
		}
	}}
	r.Check = func() error {
		clear(got)
		run()
		send(k, got)
		if bad, err := k.Check(); bad != nil || err != nil && c.signed() {
			return fmt.Errorf("bad block: %v, %v", bad, err)
		}
		if !bytes.Equal(got, wire) {
			return errors.New("the wire is not what packages sig and xts make of the data")
		}
		return nil
	}
	if c.name == "row C" || c.name == "row H" {
		r.Limit = new(c.steps(in != c.encrypt))
	}
	return r
}

func (c *cryptoRow) signed() bool { return c.memory != nil || c.wire != nil }

// key returns a key and the bytes of its wire domain, which packages sig and xts have made.
// The key has received these bytes, so its memory holds the matching memory domain.
func (c *cryptoRow) key(where string) (*mkey.Key, []byte) {
	size := DataSize
	if c.memory != nil {
		size = int(c.memory.StreamLen(DataSize))
	}
	conf := mkey.KeyConfig{Access: rdma.LocalWrite, Layout: layout(where, size)}
	if c.signed() {
		conf.Signature = &mkey.Signature{Memory: c.memory, Wire: c.wire}
	}
	secret := random(64)
	if c.crypt {
		d, err := dek.New(secret)
		must(err)
		conf.Crypto = &mkey.Crypto{EncryptOnTX: c.encrypt, Order: c.order, DataUnitSize: c.unit, DEK: d}
	}
	k, err := mkey.New(conf)
	must(err)

	wire := random(DataSize)
	encrypt := func() {
		cipher, err := xts.New(secret)
		must(err)
		cipher.Encrypt(wire, wire, c.unit, xts.Tweak{})
	}
	encrypted := c.crypt && c.encrypt
	if encrypted && c.order == mkey.SignatureAfterCrypto {
		encrypt()
	}
	if c.wire != nil {
		plain := wire
		wire = make([]byte, c.wire.StreamLen(DataSize))
		_, err := c.wire.Protect(wire, plain)
		must(err)
	}
	if encrypted && c.order == mkey.SignatureBeforeCrypto {
		encrypt()
	}
	receive(k, wire)
	return k, wire
}

// steps returns the case of the two steps of rows C and H: generating fields and
// encrypting, or decrypting and checking fields.
func (c *cryptoRow) steps(encrypt bool) Case {
	op := Strip
	if encrypt {
		op = Protect
	}
	signature := newSigRow("T10-DIF", op, sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 1}).Ours
	stream := random(DataSize / 512 * 520)
	cipher, err := xts.New(random(64))
	must(err)
	crypt := cipher.Decrypt
	if encrypt {
		crypt = cipher.Encrypt
	}
	return Case{Name: "its two steps", Work: DataSize, Run: func(times int) {
		for range times {
			signature.Run(1)
			crypt(stream, stream, c.unit, xts.Tweak{})
		}
	}}
}

// layout returns size bytes of memory, in one piece or in pieces that are neither
// neighbours nor in order.
func layout(where string, size int) mkey.List {
	if where == contiguous {
		return mkey.List{{Memory: mkey.Bytes(make([]byte, size)), Length: uint64(size)}}
	}
	const page = 4 << 10
	pages := (size + page - 1) / page
	memory := mkey.Bytes(make([]byte, 2*pages*page))
	var list mkey.List
	for i := range pages {
		list = append(list, mkey.Segment{
			Memory: memory,
			Addr:   uint64(2 * page * (pages - 1 - i)),
			Length: uint64(min(page, size-i*page)),
		})
	}
	return list
}

// send reads the wire bytes of a key.
func send(k *mkey.Key, wire []byte) {
	tx, err := k.NewReader(0, int64(len(wire)))
	must(err)
	_, err = tx.ReadAt(wire, 0)
	must(err)
	tx.Close()
}

// receive writes the wire bytes to a key.
func receive(k *mkey.Key, wire []byte) {
	rx, err := k.NewWriter(0, int64(len(wire)))
	must(err)
	_, err = rx.Write(wire)
	must(err)
	must(rx.Finish())
	rx.Close()
}

// must panics on errors that these operations cannot have.
func must(err error) {
	if err != nil {
		panic("bench: " + err.Error())
	}
}
