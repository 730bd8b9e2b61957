// Package prm is the codec of the adapter's own formats, as the driver mlx5 writes and
// reads them: the entries of send and receive queues, completions, doorbell records, the
// commands of mlx5dv, and the capabilities. It is pure: bytes in, values out.
//
// All numbers in the formats are big-endian. The fields of commands and contexts are
// named by their offset in bits, the most significant bit first, as the adapter's
// documentation counts ([Bits], [SetBits]).
//
// # Send queue entries
//
// [WQE.Parse] decodes one entry of a send queue, which the caller has gathered into one
// slice if it wrapped around the end of the queue: [ControlSize] bytes tell its length
// ([ParseControl]). The configuration of a memory key (UMR) is decoded into [UMR] with the
// signature's and crypto's byte stream formats ([SignatureBSF], [CryptoBSF]).
//
// # Completions
//
// [CQE.Put] encodes a completion of 64 bytes without its last byte, which the adapter
// writes last: it holds the owner bit that hands the entry to the program
// ([CQE.OpOwn]).
//
// # Sources
//
// Layouts and values are those of <infiniband/mlx5dv.h> (package libibverbs-dev) where
// that header has them; the others were seen in what the driver writes.
package prm
