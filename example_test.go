package softmkey_test

import (
	"fmt"
	"log"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// A memory key over one block: a reader of the wire domain gets the data and its field.
func Example() {
	memory := make(mkey.Bytes, 512)
	key, err := mkey.New(mkey.KeyConfig{
		Layout:    mkey.List{{Memory: memory, Length: 512}},
		Signature: &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	tx, err := key.NewReader(0, 520)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Close()
	wire := make([]byte, 520)
	if _, err := tx.ReadAt(wire, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("% x\n", wire[512:])
	// Output: 00 00 56 78 00 00 00 01
}
