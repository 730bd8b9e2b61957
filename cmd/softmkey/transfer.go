package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/mkeyio"
)

// transferFlags are the flags of tx and rx, which describe the whole configuration of a key.
type transferFlags struct {
	pass
	signature signatureFlags
	crypto    cryptoFlags
	volume    volumeFlags
}

func (f *transferFlags) bind(c *cobra.Command) {
	f.signature.bind(c)
	f.crypto.bindUnits(c, sizeWords(mkeyio.EncryptionUnits()))
	f.volume.bind(c, "IN")
	f.bindKeepGoing(c)
	f.pass.bind(c)
}

// run runs IN through the key in a direction.
func (f *transferFlags) run(c *cobra.Command, d mkeyio.Direction, args []string) error {
	s, err := f.signature.attributes(c)
	if err != nil {
		return err
	}
	if f.volume.ofLUKS() && (f.crypto.crypto.value == "encrypt") == (d == mkeyio.TX) {
		return usage(c, errors.New("--luks: IN is the encrypted volume: decrypt it, with tx --crypto decrypt"))
	}
	if err := f.volume.fromHeader(&f.crypto, args[0]); err != nil {
		return err
	}
	crypto, key, err := f.crypto.attributes(c, s)
	if err != nil {
		return err
	}
	if s == nil && crypto == nil {
		return usage(c, errors.New("--mem, --wire or --crypto is missing: without them OUT would be a copy of IN"))
	}
	defer key.Close()
	if err := f.volume.apply(c, &f.pass, s, crypto, d); err != nil {
		return usage(c, err)
	}
	if in, _ := jobFormats(&mkeyio.StreamJob{Direction: d, Signature: s}); in == nil && c.Flags().Changed("check-mask") {
		return usage(c, errors.New("--check-mask: the input has no signature, so there is nothing to check"))
	}
	f.secret = crypto != nil && crypto.EncryptOnTX == (d == mkeyio.RX)
	return f.pass.run(c, mkeyio.StreamJob{Direction: d, Signature: s, Crypto: crypto}, args[0], args[1])
}

// transferLong is the part of the help text that tx and rx share.
const transferLong = `

The flags describe the key from memory to the wire, for tx and rx alike: --mem and --wire
are the signatures of the two domains, --crypto is the operation from memory to the
wire, and --order places the signatures before it or after it. A key allows these
combinations:

    --crypto --order --mem --wire   memory to wire
    encrypt                         encrypt
    encrypt  after         SIG      encrypt, then sign the ciphertext
    encrypt  before        SIG      sign, then encrypt data and fields
    encrypt  before  SIG            check and strip, then encrypt
    encrypt  before  SIG   SIG      check and sign anew, then encrypt
    decrypt                         decrypt
    decrypt  after         SIG      decrypt, then sign
    decrypt  after   SIG            decrypt, then check and strip
    decrypt  after   SIG   SIG      decrypt, then check and sign anew
    decrypt  before  SIG            check and strip signed ciphertext, then decrypt

libmlx5 and adapters accept two more combinations, with a signature in one domain only:
"encrypt after" with --mem alone, which equals "encrypt before", and "decrypt before"
with --wire alone, which equals "decrypt after". That they are equal is inferred from the
adapter's formats.

The encrypted stream is cut into data units, whose tweaks count up from --tweak. With
signatures, the last unit may be shorter: 16 bytes or more, at least 16 bytes less than
the others, in a stream whose length is a multiple of 16 bytes. Without signatures, a
stream may have any length except 1 to 15 bytes: the last unit ends with ciphertext
stealing, and takes up to 15 bytes more that would be too short for a unit of their own.
A new file with decrypted data has the mode 0600.

Without signatures, the volumes of dm-crypt, LUKS1 and LUKS2 with aes-xts-plain64 can be
read and written: --dek is the volume key ('cryptsetup luksDump --dump-volume-key
--volume-key-file KEY'), --offset the offset of the data in IN, --unit its sectors, and
--tweak-step 8 counts for sectors of 4096 bytes in steps of 512, as LUKS2 does. --luks
takes all of that from the header of IN, and refuses a key that is not the volume's.

A mask has a bit for each byte of a field, the highest for the most significant byte:
T10-DIF 0xC0 guard, 0x30 application tag, 0x0F reference tag; CRC32 and CRC32C 0xF0;
CRC64 0xFF.

At the first bad block the command stops with exit status 1 and makes no OUT. With
--keep-going it reports every bad block and continues, as hardware does.`
