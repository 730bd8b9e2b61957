package cmcore

// ECE holds the options of enhanced connection establishment in a REQ or REP: vendor-specific extensions of the
// application. The zero value means none.
type ECE struct {
	Vendor  uint32 // 24 bits
	Options uint32
}
