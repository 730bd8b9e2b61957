package main

import "github.com/spf13/cobra"

// newSigHelp returns a topic of the manual, which is a command that does nothing.
func newSigHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "sig",
		Short: "How signatures are written on the command line",
		Long: `A signature, SIG, consists of a type, a block size and options:

    TYPE[:BLOCK][,OPTION]...

TYPE is one of

    none      no signature: data only
    t10dif    T10 Data Integrity Field: guard (2 bytes), application tag (2),
              reference tag (4), all big-endian
    crc32     CRC of the polynomial 0x04C11DB7, most significant bit first;
              4 bytes, big-endian
    crc32c    CRC32C (Castagnoli); 4 bytes, little-endian
    crc64     CRC64 of XP10 and NVMe; 8 bytes, little-endian

BLOCK is the size of a block in bytes of data, a multiple of 8; the default is 512. The
memory keys of tx and rx have blocks of 512, 520, 4048, 4096 and 4160 bytes. As all
sizes on the command line it is decimal, or hexadecimal after 0x, and K, M, G and T
stand for powers of 1024: 4K is 4096.

OPTION is one of

    seed=0|ones       initial value of the register for each block; default 0
                      for t10dif, ones for the CRCs
    guard=crc|csum    t10dif: the guard is a CRC-16 or an IP checksum; default crc
    app=N             t10dif: application tag; default 0
    ref=N             t10dif: reference tag of the first block; default 0
    app-mask=N        t10dif: the bits of the application tag that are
                      compared; default 0xffff
    type1, type2      t10dif: remap and app-escape; this is the default
    type3             t10dif: no-remap and app-ref-escape
    remap, no-remap   t10dif: the reference tag rises by one with each block, or
                      is the same for all blocks
    app-escape        t10dif: a block whose application tag is 0xffff is not
                      checked
    app-ref-escape    t10dif: a block whose application tag is 0xffff and
                      whose reference tag is 0xffffffff is not checked
    no-escape         t10dif: every block is checked

N is decimal, or hexadecimal after 0x.`,
		Example: `  t10dif                             type 1 on 512-byte blocks
  t10dif:4096,app=0x5678,ref=2048    tags as a file system at block 2048 has them
  t10dif:520,guard=csum,type3        IP checksum, constant reference tag
  crc32c:4096                        as iSCSI's, on 4096-byte blocks
  crc64:4K,seed=0`,
	}
}
