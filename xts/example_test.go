package xts_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/softmkey/softmkey/xts"
)

// Four sectors of 512 bytes from sector 1000 on, encrypted in place.
func ExampleCipher_Encrypt() {
	key, _ := hex.DecodeString("2718281828459045235360287471352631415926535897932384626433832795")
	c, err := xts.New(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	sectors := make([]byte, 4*512)
	c.Encrypt(sectors, sectors, 512, xts.Tweak{Lo: 1000})
	fmt.Printf("sector 1000: %x...\n", sectors[:8])
	fmt.Printf("sector 1001: %x...\n", sectors[512:][:8])

	// Each sector can be decrypted separately.
	c.DecryptUnit(sectors[512:], sectors[512:1024], xts.Tweak{Lo: 1001})
	fmt.Printf("sector 1001: %x...\n", sectors[512:][:8])
	// Output:
	// sector 1000: 6a9eaa0757cac112...
	// sector 1001: 974c31546224ff85...
	// sector 1001: 0000000000000000...
}

// Vector 15 of IEEE Std 1619: a unit of 17 bytes. Ciphertext stealing keeps its length.
func ExampleCipher_EncryptUnit() {
	key, _ := hex.DecodeString("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0")
	plain, _ := hex.DecodeString("000102030405060708090a0b0c0d0e0f10")
	c, err := xts.New(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	unit := make([]byte, len(plain))
	c.EncryptUnit(unit, plain, xts.Tweak{Lo: 0x123456789a})
	fmt.Printf("%x\n", unit)
	// Output: 6c1625db4671522d3d7599601de7ca09ed
}

// The two halves of a key must differ.
func ExampleNew() {
	_, err := xts.New(make([]byte, 64))
	fmt.Println(err)
	// Output: xts new: key1 and key2 are equal
}

func ExampleParseTweak() {
	t, err := xts.ParseTweak("18446744073709551615") // largest value of 64 bits
	fmt.Println(t.Add(1), err)
	text, err := json.Marshal(t.Add(1))
	fmt.Printf("%s %v\n", text, err)
	// Output:
	// 0x10000000000000000 <nil>
	// "0x10000000000000000" <nil>
}
