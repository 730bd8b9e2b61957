// Package softmkey is the memory keys of a ConnectX adapter in software. The package holds no
// code; it says which package of the module is for what.
//
// A memory key tells an RDMA adapter which memory it may move, and what to do with the bytes on
// their way between memory and the wire: sign each block, check it, strip or convert its
// signature, encrypt it.
//
// Without a network:
//
//   - [github.com/softmkey/softmkey/sig]: T10-DIF, CRC32, CRC32C, CRC64 and NVMe's protection
//     information on byte slices, many blocks per call
//   - [github.com/softmkey/softmkey/xts]: AES-XTS over many data units per call
//   - [github.com/softmkey/softmkey/mkey]: both, between scattered memory and a stream
//   - [github.com/softmkey/softmkey/mkeyio]: files and streams of any size, on all cores
//   - [github.com/softmkey/softmkey/dek]: data encryption keys, key wrap, logins
//
// RDMA:
//
//   - [github.com/softmkey/softmkey/verbs]: the device: protection domains, regions, memory
//     keys, queue pairs, completions
//   - [github.com/softmkey/softmkey/cm]: connections by IP address and port, in the shape of
//     package net
//   - [github.com/softmkey/softmkey/packetconn]: a network of one's own under a device
//   - [github.com/softmkey/softmkey/rdma]: the vocabulary of all of these, with the values of
//     libibverbs
//   - [github.com/softmkey/softmkey/operr]: the type of errors of refused operations
//
// The command softmkey, with an adapter for unmodified C programs and for virtual machines, is
// described in docs/README.md of the module.
package softmkey
