package xts

import "unsafe"

// Schedule returns the expanded keys for kernels of this module that encrypt and sign
// in one pass, or nil where there are none. It is of no use to others, and valid
// until Wipe.
func (c *Cipher) Schedule() unsafe.Pointer { return c.key.Schedule() }
