package xts

// The keys of a Cipher are behind an unsafe.Pointer, which neither package fmt nor an encoder
// follows, also in an unexported field of a caller's struct.

// String returns "AES-XTS cipher".
func (c *Cipher) String() string { return "AES-XTS cipher" }
