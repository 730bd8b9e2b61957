package main

import "github.com/spf13/cobra"

// newSigHelp returns the topic "sig" of the help, a command with a text and nothing to run.
func newSigHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "sig",
		Short: "How signatures are written on the command line",
		Long: `A signature, SIG, consists of a type, a block size and options:

    TYPE[:BLOCK][,OPTION]...

TYPE is one of

    none      no signature: data only. For protect, strip and convert none:BLOCK+N is
              a block with N bytes after it that nobody checks, such as none:512+8
              for sectors of 520 bytes; with the option meta-first, before it
    t10dif    T10 Data Integrity Field: guard (2 bytes), application tag (2),
              reference tag (4), all big-endian
    crc32     CRC of the polynomial 0x04C11DB7, most significant bit first;
              4 bytes, big-endian
    crc32c    CRC32C (Castagnoli); 4 bytes, little-endian
    crc64     CRC64 of XP10 and NVMe; 8 bytes, little-endian
    nvme16    protection information of NVMe 2.0, big-endian: with a 16-bit guard as
              t10dif (8 bytes),
    nvme32    with a 32-bit guard, CRC32C (16 bytes): guard (4), application tag (2),
              storage and reference tag (10),
    nvme64    with a 64-bit guard, CRC64 (16 bytes): guard (8), application tag (2),
              storage and reference tag (6)

BLOCK is the size of a block in bytes of data, a multiple of 8; the default is 512. The
memory keys of tx, rx and copy have blocks of 512, 520, 4048, 4096 and 4160 bytes, and none
of the nvme types, which exist for files only. As all
sizes on the command line it is decimal, or hexadecimal after 0x, and K, M, G and T
stand for powers of 1024: 4K is 4096.

OPTION is one of

    seed=0|ones       t10dif and CRCs: initial value of the register for each
                      block; default 0 for t10dif, ones for the CRCs
    guard=crc|csum    t10dif: the guard is a CRC-16 or an IP checksum; default crc
    app=N             application tag; default 0. The options from here to
                      no-escape are for t10dif and the nvme types
    ref=N             reference tag of the first block; default 0
    app-mask=N        the bits of the application tag that are compared; default
                      0xffff
    no-app-check, no-ref-check, no-guard-check
                      that part of the field is not compared
    type1, type2      remap and app-escape; this is the default
    type3             the reference tag is the same for all blocks and not compared;
                      app-ref-escape
    remap, no-remap   the reference tag rises by one with each block, or is the
                      same for all blocks; it is compared, also after type3
    app-escape        a block whose application tag is 0xffff is not checked
    app-ref-escape    a block whose application tag is 0xffff and whose
                      reference tag is all ones is not checked
    no-escape         every block is checked
    meta=N            nvme: bytes of metadata after a block; default those of the
                      field. What is beside the field is written as zeros
    pi-first          nvme: the field is in the first bytes of the metadata, and the
                      guard covers the block alone. Without it the field is in
                      the last bytes, and the guard covers the metadata before it
    sts=N             nvme: bits of the storage tag, which the reference tag has
                      less: 0 to 32, 16 to 64, 0 to 48; default the least
    storage=N         nvme: storage tag; default 0
    no-storage-check  nvme: the storage tag is not compared

N is decimal, or hexadecimal after 0x.`,
		Example: `  t10dif                             type 1 on 512-byte blocks
  t10dif:4096,app=0x5678,ref=2048    tags as a file system at block 2048 has them
  t10dif:520,guard=csum,type3        IP checksum, constant reference tag
  crc32c:4096                        as iSCSI's, on 4096-byte blocks
  crc64:4K,seed=0
  none:512+16                        sectors of 528 bytes, 16 of which nobody checks
  nvme64:4096                        an NVMe namespace of 4096 + 16 bytes, 64-bit guard
  nvme32:4096,meta=64,sts=32,storage=0x1234`,
	}
}
