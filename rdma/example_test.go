package rdma_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/softmkey/softmkey/rdma"
)

// The result of a request as a value, in words and as an error.
func ExampleStatus() {
	wc := rdma.WC{ID: 7, Status: rdma.StatusRetryExcErr}
	fmt.Println(wc.Status)
	var status rdma.StatusError
	if err := fmt.Errorf("request %d: %w", wc.ID, wc.Status.Err()); errors.As(err, &status) {
		fmt.Println(err, status.Timeout())
	}
	// Output:
	// transport retry counter exceeded
	// request 7: transport retry counter exceeded true
}

// IPv4 addresses are GIDs, too.
func ExampleGIDOf() {
	gid := rdma.GIDOf(netip.MustParseAddr("192.0.2.1"))
	fmt.Println(gid)
	fmt.Println(gid.Addr())
	// Output:
	// 0000:0000:0000:0000:0000:ffff:c000:0201
	// 192.0.2.1
}
