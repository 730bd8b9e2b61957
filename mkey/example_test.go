package mkey_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// sendWire uses a key from its beginning as a SEND or the response to a READ does.
func sendWire(k *mkey.Key, n int) []byte {
	tx := must(k.NewReader(0, int64(n)))
	defer tx.Close()
	wire := make([]byte, n)
	must(tx.ReadAt(wire, 0))
	return wire
}

// recvWire uses a key from its beginning as a RECV or an incoming WRITE does.
func recvWire(k *mkey.Key, wire []byte) {
	rx := must(k.NewWriter(0, int64(len(wire))))
	defer rx.Close()
	if err := writeAll(rx, wire); err != nil {
		panic(err)
	}
}

func config(mem []byte, s *mkey.Signature, c *mkey.Crypto) *mkey.Key {
	return must(mkey.New(mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Signature: s, Crypto: c}))
}

// A key over one slice, with a T10-DIF after every block on the wire. A program without a
// device needs nothing else. The fields are those that a ConnectX generates.
func Example() {
	mem := bytes.Repeat([]byte{0xA5}, 1024)
	key, err := mkey.New(mkey.KeyConfig{
		Layout: mkey.List{{Memory: mkey.Bytes(mem), Length: 1024}},
		Signature: &mkey.Signature{
			Wire: &sig.Format{Type: sig.T10DIF, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A},
		},
	})
	if err != nil {
		panic(err)
	}
	n, err := key.WireLen()
	if err != nil {
		panic(err)
	}
	tx, err := key.NewReader(0, n)
	if err != nil {
		panic(err)
	}
	defer tx.Close()
	wire, err := io.ReadAll(tx)
	if err != nil {
		panic(err)
	}
	fmt.Printf("% X\n% X\n", wire[512:520], wire[1032:])
	// Output:
	// EC 7D 56 78 F0 DE BC 9A
	// EC 7D 56 78 F0 DE BC 9B
}

// Example 1 of mlx5dv_wr_set_mkey_sig_block(3). Memory domain: CRC32 every 512 bytes.
// Wire domain: no signature. Operation: a SEND with the key as local key. Result: the
// fields are validated and stripped, and 512 bytes are sent. (A ConnectX computes this
// CRC from a register of 0.)
func ExampleSignature_example1() {
	mem := append(bytes.Repeat([]byte{1}, 512), 0x15, 0xD2, 0x86, 0xF7)
	key := config(mem, &mkey.Signature{
		Memory:    &sig.Format{Type: sig.CRC32, Seed: sig.SeedZeros},
		CheckMask: new(sig.MaskAll),
	}, nil)

	wire := sendWire(key, 512)
	fmt.Println(bytes.Equal(wire, mem[:512]))
	fmt.Println(key.Check())

	mem[100] ^= 4
	sendWire(key, 512) // no transport error: the data is sent
	bad, err := key.Check()
	fmt.Println(bad, err)
	fmt.Println(key.Check()) // Check clears the error
	// Output:
	// true
	// <nil> <nil>
	// memory domain: bad guard: block 0 at offset 0: stored 0x15d286f7, computed 0xf9fa43aa <nil>
	// <nil> <nil>
}

// Example 1.1 of mlx5dv_wr_set_mkey_sig_block(3): the same key in a RECV. Result: the
// data is scattered to memory, and a CRC32 after every 512 bytes.
func ExampleSignature_example1point1() {
	mem := make([]byte, 2*516)
	key := config(mem, &mkey.Signature{
		Memory:    &sig.Format{Type: sig.CRC32, Seed: sig.SeedZeros},
		CheckMask: new(sig.MaskAll),
	}, nil)

	recvWire(key, bytes.Repeat([]byte{1}, 1024))
	fmt.Printf("% X\n% X\n", mem[510:518], mem[1026:])
	// Output:
	// 01 01 15 D2 86 F7 01 01
	// 01 01 15 D2 86 F7
}

// Example 2 of mlx5dv_wr_set_mkey_sig_block(3). Memory domain: no signature. Wire
// domain: T10-DIF every 4 KiB. Operation: a remote node issues an RDMA READ. Result:
// the data is sent with a T10-DIF after every 4 KiB.
func ExampleSignature_example2() {
	mem := bytes.Repeat([]byte{0xA5}, 8192)
	key := config(mem, &mkey.Signature{
		Wire: &sig.Format{Type: sig.T10DIF, BlockSize: 4096, AppTag: 1, RefTag: 100},
	}, nil)

	wire := sendWire(key, 2*4104)
	fmt.Println(bytes.Equal(wire[:4096], mem[:4096]), bytes.Equal(wire[4104:8200], mem[4096:]))
	fmt.Printf("% X\n% X\n", wire[4096:4104], wire[8200:])
	// Output:
	// true true
	// 18 6A 00 01 00 00 00 64
	// 18 6A 00 01 00 00 00 65
}

// Example 2.1 of mlx5dv_wr_set_mkey_sig_block(3): a remote node issues an RDMA WRITE to
// the same key. Result: the fields are validated and stripped, and the data alone is
// scattered.
func ExampleSignature_example2point1() {
	format := &sig.Format{Type: sig.T10DIF, BlockSize: 4096, AppTag: 1, RefTag: 100}
	wire := append(bytes.Repeat([]byte{0xA5}, 4096), 0x18, 0x6A, 0x00, 0x01, 0x00, 0x00, 0x00, 0x64)
	wire = append(append(wire, bytes.Repeat([]byte{0xA5}, 4096)...), 0x18, 0x6A, 0x00, 0x01, 0x00, 0x00, 0x00, 0x65)

	mem := make([]byte, 8192)
	key := config(mem, &mkey.Signature{Wire: format}, nil)
	recvWire(key, wire)
	fmt.Println(bytes.Equal(mem, bytes.Repeat([]byte{0xA5}, 8192)))
	fmt.Println(key.Check())

	wire[len(wire)-1] = 0x66 // a block that belongs elsewhere
	recvWire(key, wire)
	fmt.Println(key.Check())
	// Output:
	// true
	// <nil> <nil>
	// wire domain: bad reference tag: block 1 at offset 4104: stored 0x66, computed 0x65 <nil>
}

// The keys of vector 10 of IEEE Std 1619-2007, annex B: AES-256, tweak 0xFF, and a data
// unit of 512 bytes that counts from 0 to 255 twice.
func vector10() *mkey.Crypto {
	key := must(hex.DecodeString("2718281828459045235360287471352662497757247093699959574966967627" +
		"3141592653589793238462643383279502884197169399375105820974944592"))
	d := must(dek.New(key))
	return &mkey.Crypto{DataUnitSize: 512, InitialTweak: xts.Tweak{Lo: 0xFF}, DEK: d}
}

// count is the plaintext of vector 10.
func count() []byte {
	b := make([]byte, 512)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// Examples 1 and 1.1 of mlx5dv_wr_set_mkey_crypto(3), row F of its table: no signatures,
// encrypt_on_tx is false, memory is encrypted and the wire is not. A RECV encrypts the
// data that it scatters; a SEND decrypts the data that it gathers.
func ExampleCrypto_example1() {
	mem := make([]byte, 512)
	key := config(mem, nil, vector10())

	recvWire(key, count())
	fmt.Printf("memory %x...\n", mem[:16])
	fmt.Printf("wire   %x...\n", sendWire(key, 512)[:16])
	// Output:
	// memory 1c3b3a102f770386e4836c99e370cf9b...
	// wire   000102030405060708090a0b0c0d0e0f...
}

// Examples 2 and 2.1 of mlx5dv_wr_set_mkey_crypto(3), row C: memory is data in
// plaintext; on the wire there is a T10-DIF every 512 bytes, and all of it is encrypted
// in units of 520. An RDMA READ of a remote node generates and encrypts the fields, an
// RDMA WRITE decrypts, validates and strips them.
func ExampleCrypto_example2() {
	crypto := vector10()
	crypto.EncryptOnTX = true
	crypto.Order = mkey.SignatureBeforeCrypto
	crypto.DataUnitSize = 520
	signature := &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, AppTag: 0x5678}}
	mem := bytes.Repeat([]byte{0xA5}, 1024)
	key := config(mem, signature, crypto)

	wire := sendWire(key, 1040)
	cipher, err := crypto.DEK.Acquire([8]byte{})
	if err != nil {
		panic(err)
	}
	plain := make([]byte, 1040)
	cipher.Decrypt(plain, wire, 520, crypto.InitialTweak)
	fmt.Printf("% X\n% X\n", plain[512:520], plain[1032:])

	clear(mem)
	recvWire(key, wire)
	fmt.Println(bytes.Equal(mem, bytes.Repeat([]byte{0xA5}, 1024)))
	fmt.Println(key.Check())
	// Output:
	// 9E C6 56 78 00 00 00 00
	// 9E C6 56 78 00 00 00 01
	// true
	// <nil> <nil>
}

// The list of mlx5dv_wr_mkey_configure(3): the first 64 bytes of a WRITE go to mr1, the
// next 4096 to mr2.
func ExampleList() {
	mr1, mr2 := make([]byte, 64), make([]byte, 4096)
	key, err := mkey.New(mkey.KeyConfig{
		Access: rdma.LocalWrite,
		Layout: mkey.List{
			{Memory: mkey.Bytes(mr1), Length: 64},
			{Memory: mkey.Bytes(mr2), Length: 4096},
		},
	})
	if err != nil {
		panic(err)
	}
	rx, err := key.NewWriter(0, 4160)
	if err != nil {
		panic(err)
	}
	defer rx.Close()
	if _, err := rx.Write(append(bytes.Repeat([]byte{1}, 64), bytes.Repeat([]byte{2}, 4096)...)); err != nil {
		panic(err)
	}
	if err := rx.Finish(); err != nil {
		panic(err)
	}
	fmt.Println(mr1[0], mr1[63], mr2[0], mr2[4095])
	// Output: 1 1 2 2
}

// The pattern of mlx5dv_wr_mkey_configure(3): 512 bytes of mr1, 8 of mr2, then 512 of
// mr1 from 516 and 8 of mr2 from 8. Data and fields lie apart, as in NVMe's separate
// metadata; here the key checks them.
func ExampleInterleaved() {
	mr1, mr2 := bytes.Repeat([]byte{0xA5}, 1028), make([]byte, 16)
	copy(mr2, "\x9E\xC6\x00\x00\x00\x00\x00\x00\x9E\xC6\x00\x00\x00\x00\x00\x09")
	key, err := mkey.New(mkey.KeyConfig{
		Layout: mkey.Interleaved{Repeat: 2, Entries: []mkey.Entry{
			{Memory: mkey.Bytes(mr1), Count: 512, Skip: 4},
			{Memory: mkey.Bytes(mr2), Count: 8},
		}},
		Signature: &mkey.Signature{Memory: &sig.Format{Type: sig.T10DIF}},
	})
	if err != nil {
		panic(err)
	}
	sendWire(key, 1024)
	fmt.Println(key.Check())
	// Output: memory domain: bad reference tag: block 1 at offset 520: stored 0x9, computed 0x1 <nil>
}

// A key over the memory of another key.
func ExampleKey_nested() {
	inner, err := mkey.New(mkey.KeyConfig{Layout: mkey.List{
		{Memory: mkey.Bytes("memory"), Addr: 3, Length: 3},
		{Memory: mkey.Bytes(" key"), Length: 4},
	}})
	if err != nil {
		panic(err)
	}
	outer, err := mkey.New(mkey.KeyConfig{Layout: mkey.List{
		{Memory: mkey.Bytes("a st"), Length: 4},
		{Memory: inner, Length: 7},
	}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", sendWire(outer, 11))
	// Output: a story key
}
