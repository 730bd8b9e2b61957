package wire_test

import (
	"fmt"
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/wire"
)

// An acknowledgement. The receiver checks its invariant CRC without knowing the
// identification in the IPv4 header.
func Example() {
	flow := wire.NewFlow(netip.MustParseAddrPort("192.0.2.1:4791"), netip.MustParseAddrPort("192.0.2.2:4791"))

	p := make([]byte, wire.BTHLen+wire.AETHLen+wire.ICRCLen)
	wire.PutBTH(p, &wire.BTH{Opcode: wire.Acknowledge, MigReq: true, PKey: wire.DefaultPKey, DestQP: 0x11, PSN: 7})
	wire.PutAETH(p[wire.BTHLen:], &wire.AETH{Syndrome: wire.ACKNoCredits, MSN: 3})
	flow.Front(len(p)).WithID(0x1234).PutICRC(p)

	id, ok := flow.Front(len(p)).Check(p)
	fmt.Printf("%x\nidentification %#x, %v\n", p, id, ok)
	p[15] ^= 1
	_, ok = flow.Front(len(p)).Check(p)
	fmt.Println(ok)
	// Output:
	// 1140ffff00000011000000071f0000030f0d2441
	// identification 0x1234, true
	// false
}
