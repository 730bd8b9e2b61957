package openssl

// #include <openssl/crypto.h>
// #include "repeat.h"
import "C"

// Repeat encrypts or decrypts the whole units of src, with tweaks that count up from
// first, as often as times says. It calls OpenSSL once per unit.
func (x XTS) Repeat(dst, src []byte, unit int, first uint64, times int) error {
	n := len(src) / unit
	if len(dst) < n*unit ||
		C.xts_repeat(x.ctx, pointer(dst), pointer(src), C.int(unit), C.size_t(n), C.uint64_t(first), C.size_t(times)) == 0 {
		return errRefused
	}
	return nil
}

// Version returns OpenSSL's name and version.
func Version() string { return C.GoString(C.OpenSSL_version(C.OPENSSL_VERSION)) }
