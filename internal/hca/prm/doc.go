// Package prm encodes and decodes the formats of the adapter as the mlx5 driver uses
// them: entries of send and receive queues, completions, doorbell records, the commands
// of mlx5dv, and capabilities. It only converts bytes to values and back.
//
// All numbers in the formats are big-endian. Fields of commands and contexts are given by
// their offset in bits, most significant bit first, as in the adapter's documentation
// ([Bits], [SetBits]).
//
// # Send queue entries
//
// [WQE.Parse] decodes one entry of a send queue from one slice. The first [ControlSize]
// bytes give its length ([ParseControl]); the caller joins an entry that wraps around the
// end of the queue. The configuration of a memory key is a UMR entry. It is decoded into
// [UMR], with the byte stream formats of signature and crypto ([SignatureBSF],
// [CryptoBSF]).
//
// # Completions
//
// [CQE.Put] encodes a completion of 64 bytes without its last byte. The adapter writes
// that byte last, because its owner bit hands the entry to the program ([CQE.OpOwn]).
//
// # Sources
//
// Layouts and values are those of <infiniband/mlx5dv.h> (package libibverbs-dev). Those
// that the header lacks were found by observing the driver.
package prm
