// Package plantest has terms of copies for tests.
package plantest

import "github.com/softmkey/softmkey/internal/tool/keyplan"

// Rows has terms with each kind of key on each side.
var Rows = []struct {
	Name  string
	Terms keyplan.Terms
}{
	{"plain", keyplan.Terms{}},
	{"wire", keyplan.Terms{Wire: "t10dif"}},
	{"wire to peer memory", keyplan.Terms{Wire: "t10dif", PeerMem: "t10dif,app=7"}},
	{"memory", keyplan.Terms{Mem: "crc32c:4096"}},
	{"all three", keyplan.Terms{Mem: "crc32c:4096", Wire: "t10dif:512,ref=0xFFFFFF00", PeerMem: "crc64:4160"}},
	{"type 3", keyplan.Terms{Mem: "t10dif:520,type3,ref=9", Wire: "t10dif:520,type3,ref=10"}},
	{"copied", keyplan.Terms{Mem: "t10dif,app=1", Wire: "t10dif,app=2", CheckMask: "0xC0", CopyMask: "0x3F", PeerMem: "t10dif,app=2", PeerCheckMask: "0xCF", PeerCopyMask: "0x30"}},
	{"row A to A", keyplan.Terms{Crypto: "encrypt", PeerCrypto: "decrypt", Tweak: "0xFFFFFFFFFFFFFFF0"}},
	{"row A to ciphertext", keyplan.Terms{Crypto: "encrypt", Unit: "4096"}},
	{"row A to signed ciphertext", keyplan.Terms{Crypto: "encrypt", Unit: "4096", PeerMem: "crc32:520"}},
	{"row A to D", keyplan.Terms{Crypto: "encrypt", PeerCrypto: "decrypt", PeerMem: "t10dif"}},
	{"row B to B", keyplan.Terms{Crypto: "encrypt", Order: "after", Wire: "crc64:4096", PeerCrypto: "decrypt"}},
	{"row B to ciphertext", keyplan.Terms{Crypto: "encrypt", Order: "after", Wire: "t10dif"}},
	{"row C to C", keyplan.Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}},
	{"row C to ciphertext", keyplan.Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}},
	{"row D to A", keyplan.Terms{Crypto: "encrypt", Order: "before", Mem: "t10dif", PeerCrypto: "decrypt"}},
	{"row E to E", keyplan.Terms{Crypto: "encrypt", Order: "before", Mem: "crc32", Wire: "t10dif", Unit: "4160", PeerCrypto: "decrypt", PeerMem: "crc32c"}},
	{"row F", keyplan.Terms{Crypto: "decrypt"}},
	{"row F to F", keyplan.Terms{Crypto: "decrypt", PeerCrypto: "encrypt", Unit: "4048"}},
	{"row G to G", keyplan.Terms{Crypto: "decrypt", Order: "after", Wire: "t10dif", PeerCrypto: "encrypt"}},
	{"row H to H", keyplan.Terms{Crypto: "decrypt", Order: "after", Mem: "t10dif", PeerCrypto: "encrypt", PeerOrder: "before", PeerMem: "t10dif"}},
	{"row I to I", keyplan.Terms{Crypto: "decrypt", Order: "after", Mem: "t10dif", Wire: "crc32c", PeerCrypto: "encrypt", PeerOrder: "before", PeerMem: "t10dif"}},
	{"row J to J", keyplan.Terms{Crypto: "decrypt", Order: "before", Mem: "crc64", PeerCrypto: "encrypt", PeerOrder: "after", PeerMem: "crc64"}},
	{"like D to like D", keyplan.Terms{Crypto: "encrypt", Order: "after", Mem: "t10dif", PeerCrypto: "decrypt", PeerOrder: "before", PeerMem: "t10dif"}},
	{"like G to like G", keyplan.Terms{Crypto: "decrypt", Order: "before", Wire: "t10dif", PeerCrypto: "encrypt", PeerOrder: "after"}},
	{"ciphertext to A", keyplan.Terms{PeerCrypto: "decrypt"}},
	{"signed ciphertext to A", keyplan.Terms{Mem: "crc32c", PeerCrypto: "decrypt"}},
	{"ciphertext to B", keyplan.Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "before"}},
	{"ciphertext to C", keyplan.Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}},
	{"ciphertext to E", keyplan.Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after", PeerMem: "crc32c"}},
}
