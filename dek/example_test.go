package dek_test

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/xts"
)

// A key from a file, used without a device.
func ExampleNew() {
	key, err := dek.ParseKey([]byte("2718281828459045235360287471352631415926535897932384626433832795\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := dek.New(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	clear(key)

	c, err := d.Acquire([8]byte{}) // no keytag
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Release()
	sector := make([]byte, 512)
	c.EncryptUnit(sector, sector, xts.Tweak{Lo: 1})
	fmt.Println(d)
	// Output: DEK (128 bit)
}

// A device in wrapped import mode. The crypto officer provisions the device once, a
// program logs in and creates a DEK, and the officer deletes the credential.
func ExampleStore() {
	kek := bytes.Repeat([]byte{0x11}, 32)
	credential := bytes.Repeat([]byte{0x22}, 40)

	store := dek.NewStore(dek.Wrapped)
	store.AddKEK(1, kek)
	store.AddCredential(7, credential)

	wrappedCredential, _ := dek.Wrap(kek, credential)
	wrappedKey, _ := dek.Wrap(kek, dek.Generate(dek.Size256, false))

	ctx := store.NewContext()
	login, err := ctx.NewLogin(7, 1, wrappedCredential)
	fmt.Println("login:", login, err)
	d, err := ctx.NewDEK(wrappedKey, &dek.DEKOptions{Login: login})
	fmt.Println("DEK:", d, err)
	fmt.Println("check:", d.Check())

	store.DeleteCredential(7)
	fmt.Println("login is valid:", login.Valid())
	err = d.Check()
	fmt.Println("check:", err, errors.Is(err, syscall.EINVAL))
	_, err = d.Acquire([8]byte{})
	fmt.Println("use:", err)
	d.Release()
	fmt.Println("close:", d.Close())
	// Output:
	// login: login (valid) <nil>
	// DEK: DEK (256 bit, wrapped) <nil>
	// check: <nil>
	// login is valid: false
	// check: dek query: a wrapped DEK, and no valid login true
	// use: <nil>
	// close: <nil>
}
