package main

import (
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

// transferFlags are the flags of tx and rx: the whole configuration of a key.
type transferFlags struct {
	pass
	signature signatureFlags
	crypto    cryptoFlags
}

func (f *transferFlags) bind(c *cobra.Command) {
	f.signature.bind(c)
	f.crypto.bind(c)
	f.bindKeepGoing(c)
	f.pass.bind(c)
}

// run runs IN through the key in a direction.
func (f *transferFlags) run(c *cobra.Command, d mkeyio.Direction, args []string) error {
	s, err := f.signature.attributes(c)
	if err != nil {
		return err
	}
	crypto, key, err := f.crypto.attributes(c, s)
	if err != nil {
		return err
	}
	if key != nil {
		defer key.Close()
	}
	f.secret = crypto != nil && crypto.EncryptOnTX == (d == mkeyio.RX)
	return f.pass.run(c, mkeyio.Job{Direction: d, Signature: s, Crypto: crypto}, args[0], args[1])
}

// transferLong is the part of the help text that tx and rx have in common.
const transferLong = `

The key is described from the memory's side, the same way for both commands: --mem and
--wire are the signatures of its two domains, --crypto says what happens from memory to
the wire, and --order whether the signatures come before it or after. The combinations
that a key allows are:

    --crypto --order --mem --wire   memory to wire
    encrypt                         encrypt
    encrypt  after         SIG      encrypt, then sign what was encrypted
    encrypt  before        SIG      sign, then encrypt data and fields
    encrypt  before  SIG            check and strip, then encrypt
    encrypt  before  SIG   SIG      check and sign anew, then encrypt
    decrypt                         decrypt
    decrypt  after         SIG      decrypt, then sign
    decrypt  after   SIG            decrypt, then check and strip
    decrypt  after   SIG   SIG      decrypt, then check and sign anew
    decrypt  before  SIG            check and strip what is encrypted, then decrypt

The encrypted stream is cut into data units, whose tweaks count up from --tweak. A last
unit that is shorter must leave the stream a multiple of 16 bytes long, and be at least
16 bytes shorter than the others.

A mask has a bit for each byte of a field, the highest for the most significant byte:
T10-DIF 0xC0 guard, 0x30 application tag, 0x0F reference tag; CRC32 and CRC32C 0xF0;
CRC64 0xFF.

At the first bad block the command stops with exit status 1 and leaves no OUT. With
--keep-going it tells of every bad block and lets the data flow on, as hardware does.`
