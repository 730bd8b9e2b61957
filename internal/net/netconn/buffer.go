package netconn

// pastPage is where packets begin in a buffer, after the beginning of a page. Programs' buffers begin on a page, and the
// kernel copies between them and the payload of a packet (process_vm_readv). Some processors copy at a twentieth of
// their speed if the destination is 1 to 31 bytes after the source, modulo the size of a page (rep movsb on AMD's
// Zen 3). The headers before a payload have 12 to 44 bytes, so that it begins 48 to 80 bytes after the page.
const pastPage = 36

// NewBuffer returns a buffer of n bytes for the packets of a train: a large one begins where payloads are copied
// fast.
func NewBuffer(n int) []byte { return make([]byte, pastPage+n)[pastPage:] }
